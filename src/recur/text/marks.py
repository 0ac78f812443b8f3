"""Code points that belong to the one before them: a text that begins with one has lost a letter."""

from __future__ import annotations

import unicodedata


def joins_before(c: str) -> bool:
    """Whether a code point belongs to what stands before it: an accent, a vowel sign, a joiner, a final of Hangul."""
    return unicodedata.category(c).startswith("M") or c in "\u200c\u200d" or "\u1160" <= c <= "\u11ff"


def without_leading_marks(text: str) -> str:
    """A text from its first whole letter on: of one written from its end, a mark may still wait for its letter."""
    return text[next((k for k, c in enumerate(text) if not joins_before(c)), len(text)) :]
