"""Code points that belong to the one before them: a text that begins with one has lost a letter."""

from __future__ import annotations

import functools
import re
import unicodedata

LONGEST = 256
"""Marks that may stand in a row: no language has more than a few, and what many of them cost grows with their square
(Unicode's stream-safe format allows 30)."""

STRIDE = 32

_PERHAPS = re.compile(f"[\u0300-\U0010ffff]{{{LONGEST // STRIDE}}}")
"""All marks lie here; with the list of them, a search takes ten times as long."""


def joins_before(c: str) -> bool:
    """Whether a code point belongs to what stands before it: an accent, a vowel sign, a joiner, a final of Hangul."""
    return unicodedata.category(c).startswith("M") or c in "\u200c\u200d" or "\u1160" <= c <= "\u11ff"


@functools.cache
def _marks() -> str:
    """All of them, as what stands in [] of a pattern."""
    found = [c for c in (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)) if joins_before(chr(c))]
    return "".join(map(chr, found))


def too_many_marks(text: str) -> bool:
    """Whether more than `LONGEST` stand in a row somewhere. Of every so many characters one is looked at first."""
    if text.isascii() or not _PERHAPS.search(some := text[::STRIDE]):
        return False
    if not re.search(f"[{_marks()}]{{{LONGEST // STRIDE}}}", some):
        return False
    return re.search(f"[{_marks()}]{{{LONGEST + 1}}}", text) is not None


def without_leading_marks(text: str) -> str:
    """A text from its first whole letter on: of one written from its end, a mark may still wait for its letter."""
    return text[next((k for k, c in enumerate(text) if not joins_before(c)), len(text)) :]
