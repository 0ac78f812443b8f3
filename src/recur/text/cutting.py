"""Texts cut where no word is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from recur.errors import TextError
from recur.files import memory, memory_taken

MEMORY = memory() / 2
"""Bytes that the examples of a file may take: a line of four characters is kept in three hundred."""

LINES = 1 << 29
"""Characters, at most, of a file of examples, all of which are in memory at once."""

T = TypeVar("T")


def whole_words(pieces: Iterable[str]) -> Iterator[str]:
    """The same text, cut behind white space only."""
    held: list[str] = []
    for piece in pieces:
        last = piece.rsplit(None, 1)[-1:]  # the last word, and what stands behind it
        cut = len(piece) - (len(last[0]) if last and not piece[-1].isspace() else 0)
        if cut:
            yield "".join([*held, piece[:cut]])
            held = []
        if cut < len(piece):
            held.append(piece[cut:])
    if held:
        yield "".join(held)


def whole_lines(pieces: Iterable[str], name: str) -> Iterator[str]:
    """The lines of a text that comes in pieces, without their ends; not more of them than a memory holds, for whoever
    asks keeps them."""
    held: list[str] = []
    read, before = 0, memory_taken()
    for piece in pieces:
        read += len(piece)
        if read > LINES:
            raise TextError(f"{name} has more than {LINES:,} characters, too many for a file that is read whole")
        first, *rest = piece.split("\n")
        held.append(first)
        for k, line in enumerate(rest):
            if not k % 100_000 and memory_taken() - before > MEMORY:
                raise TextError(f"{name} takes more than half of this machine's memory; take fewer lines of it")
            yield "".join(held)
            held = [line]
    if last := "".join(held):
        yield last


def count_tokens(split: Callable[[str], list[str]], pieces: Iterable[str]) -> Counter[str]:
    """Of all pieces, no word of which is cut."""
    counts: Counter[str] = Counter()
    for piece in whole_words(pieces):
        counts.update(split(piece))
    return counts


def short_lines(pieces: Iterable[str], longest: int = 2000) -> Iterator[str]:
    """Lines for sentencepiece, which passes over long ones in silence: those are cut, at white space if they can be."""
    for piece in whole_words(pieces):
        for line in piece.split("\n"):
            while len(line) > longest:
                cut = line.rfind(" ", 1, longest)
                cut = cut if cut > 0 else longest
                yield line[:cut]
                line = line[cut:]
            if line:
                yield line


def between(items: Sequence[T], separator: T) -> Iterator[T]:
    """The items, with a separator between each and the next."""
    for k, item in enumerate(items):
        if k:
            yield separator
        yield item
