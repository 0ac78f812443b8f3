"""Files of lines: each line with the place it comes from."""

from __future__ import annotations

from collections.abc import Iterator

from recur.data.text.corpus import Corpus
from recur.data.text.cutting import whole_lines
from recur.data.text.sources import Source, find_sources


def numbered_lines(name: str) -> Iterator[tuple[str, str]]:
    """The file and number of every line, and the line without its end. A folder's files come one after the other."""
    for source in find_sources([name])[0]:
        yield from source_lines(source)


def source_lines(source: Source) -> Iterator[tuple[str, str]]:
    """… of one file."""
    pieces = Corpus(source.name, (source,)).pieces()
    for number, line in enumerate(whole_lines(pieces, source.name), start=1):
        yield f"{source.name}:{number}", line
