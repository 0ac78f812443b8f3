"""Code points that belong to the one before them: a text that begins with one has lost a letter."""

from __future__ import annotations

import functools
import re
import unicodedata

from recur.errors import TextError
from recur.limits import MARKS

STRIDE = 32

_PERHAPS = re.compile(f"[\u0300-\U0010ffff]{{{MARKS // STRIDE}}}")
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
    """Return True if more than MARKS combining marks follow each other. A sample of the text is searched first."""
    if len(text) <= MARKS or text.isascii() or not _PERHAPS.search(some := text[::STRIDE]):
        return False
    if not re.search(f"[{_marks()}]{{{MARKS // STRIDE}}}", some):
        return False
    return re.search(f"[{_marks()}]{{{MARKS + 1}}}", text) is not None


def composed(text: str, where: str) -> str:
    """Return a text in Unicode's composed form (NFC), and refuse one whose normalisation would take quadratic time.

    This is the only function of the package that normalises text of any length.
    """
    if text.isascii():
        return text
    if too_many_marks(text):
        raise TextError(f"{where} is not text: it has more than {MARKS} accents or other marks in a row")
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def without_leading_marks(text: str) -> str:
    """A text from its first whole letter on: of one written from its end, a mark may still wait for its letter."""
    return text[next((k for k, c in enumerate(text) if not joins_before(c)), len(text)) :]
