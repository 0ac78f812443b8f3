"""Pairs of sequences: a table `source TAB target`, or two files whose lines belong together.

Read as every text is (UTF-8, composed, any line ends); errors name the file and the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recur.data.text.corpus import Corpus
from recur.data.text.cutting import whole_lines
from recur.errors import TextError


class Pair(NamedTuple):
    """A source, its target, and where they stand.

    >>> recur.data.text.read_pairs(["pairs.tsv"])[0].target
    'c b 0 a'
    """

    source: str
    target: str
    where: str
    """The file and line it comes from."""


def read_pairs(names: Sequence[str]) -> list[Pair]:
    """One name, or several that end in .tsv, are tables; two other names are sources and their targets.

    >>> len(recur.data.text.read_pairs(["train.de", "train.en"]))      # line by line
    60
    """
    tables = len(names) == 1 or all(name.removesuffix(".gz").endswith(".tsv") for name in names)
    if not tables and len(names) != 2:
        raise TextError(f"pairs come as tables (.tsv) or as two files, sources and targets; got {', '.join(names)}")
    pairs = [pair for name in names for pair in _table(name)] if tables else list(_parallel(*names))
    if not pairs:
        raise TextError(f"{names[0]} holds no pair")
    for source, target, where in pairs:
        if not source.strip():
            raise TextError(f"{where}: the source is empty")
        if not target.strip():
            raise TextError(f"{where}: the target is empty")
    return pairs


def read_lines(name: str) -> Iterator[str]:
    """The lines of a file, without their ends."""
    return whole_lines(Corpus.of(name).pieces(), name)


def _table(name: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(name), start=1):
        if not line:
            continue
        columns = line.split("\t")
        if len(columns) != 2:
            raise TextError(f"{name}:{number}: a pair is source TAB target, 2 columns; this line has {len(columns)}")
        yield Pair(columns[0], columns[1], f"{name}:{number}")


def _parallel(sources: str, targets: str) -> Iterator[Pair]:
    left, right = list(read_lines(sources)), list(read_lines(targets))
    if len(left) != len(right):
        raise TextError(f"{sources} has {len(left)} lines and {targets} {len(right)}; line by line they are pairs")
    for number, (source, target) in enumerate(zip(left, right, strict=True), start=1):
        yield Pair(source, target, f"{sources if not source.strip() else targets}:{number}")
