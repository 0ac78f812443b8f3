"""Files of lines: each line with the place it comes from; and tables of `label TAB text`, a text and its class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recur.errors import TextError
from recur.text.corpus import Corpus
from recur.text.cutting import whole_lines
from recur.text.sources import find_sources


class LabelledText(NamedTuple):
    text: str
    label: str
    where: str


def numbered_lines(name: str) -> Iterator[tuple[str, str]]:
    """The file and number of every line, and the line without its end. A folder's files come one after the other."""
    for source in find_sources([name])[0]:
        pieces = Corpus(source.name, (source,)).pieces()
        for number, line in enumerate(whole_lines(pieces, source.name), start=1):
            yield f"{source.name}:{number}", line


def read_labelled(names: Sequence[str]) -> list[LabelledText]:
    found = []
    for where, line in (pair for name in names for pair in numbered_lines(name)):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip() or not text.strip():
            raise TextError(f"{where}: a line is label TAB text, got {line[:40]!r}")
        found.append(LabelledText(text.strip(), label.strip(), where))
    if not found:
        raise TextError(f"{', '.join(names)} holds no line; one is label TAB text")
    return found
