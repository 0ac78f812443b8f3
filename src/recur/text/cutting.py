"""Texts cut where no word is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def whole_words(pieces: Iterable[str]) -> Iterator[str]:
    """The same text, cut behind white space only."""
    held: list[str] = []
    for piece in pieces:
        cut = len(piece)
        while cut and not piece[cut - 1].isspace():
            cut -= 1
        if cut:
            yield "".join([*held, piece[:cut]])
            held = []
        if cut < len(piece):
            held.append(piece[cut:])
    if held:
        yield "".join(held)


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
