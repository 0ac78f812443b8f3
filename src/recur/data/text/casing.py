"""How a word is written: its case, and whether it has digits or signs."""

from __future__ import annotations

CASINGS = ("lower", "title", "upper", "mixed", "digits", "number", "digit inside", "sign", "other")
"""`number` is digits with signs, as in 1,000.5; `other` is of letters that have no case."""


def casing_of(word: str) -> int:
    """The place of a word's casing among CASINGS."""
    return CASINGS.index(_casing(word))


def _casing(word: str) -> str:
    letters = [c for c in word if c.isalpha()]
    if any(map(str.isdigit, word)):
        return "digit inside" if letters else "digits" if word.isdigit() else "number"
    if not letters:
        return "sign"
    if word.islower():
        return "lower"
    if word.isupper():
        return "upper" if len(letters) > 1 else "title"
    if letters[0].isupper() and "".join(letters[1:]).islower():
        return "title"
    return "mixed" if any(c.isupper() for c in letters) else "other"
