"""Whether a line is of symbols between spaces, such as phonemes, or of words."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable


def between_spaces(lines: Iterable[str]) -> bool:
    """Whether symbols stand between spaces, as in `t͡ʃ a n d`: nine in ten are of 1 to 3 letters, and nine in ten lines
    that are longer than that have a space.

    A letter is counted without its marks (ʰ, ː, a tie), and a syllable of Hangul by its letters. Of the words of a
    text in English or German not even half are as short; Chinese without spaces has none between symbols.
    """
    rows = [line.split() for line in lines if line.strip()]
    symbols = [_letters(symbol) for row in rows for symbol in row]
    long = [row for row in rows if len(row) > 1 or _letters(row[0]) > 3]
    spaced = sum(len(row) > 1 for row in long)
    short = sum(letters <= 3 for letters in symbols)
    return spaced > 0 and spaced >= 0.9 * len(long) and short >= 0.9 * len(symbols)


def _letters(symbol: str) -> int:
    if len(symbol) > 100:  # no symbol
        return len(symbol)
    marks = ("Mn", "Mc", "Me", "Lm", "Sk")
    return sum(unicodedata.category(c) not in marks for c in unicodedata.normalize("NFD", symbol))
