"""Options of a layer, checked before anything is made of them."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from recur.errors import OptionError, shown


def whole(name: str, value: object, least: int) -> int:
    """A whole number, of Python's or NumPy's, that is large enough, and not larger than any memory."""
    try:
        number = operator.index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else -1
    except TypeError:  # an array of several
        number = -1
    if number < least:
        raise OptionError(f"{name} must be a whole number ≥ {least}, got {shown(value)}")
    if number > 2**53:
        raise OptionError(f"{name} must be at most 2⁵³, got {shown(value)}")
    return number


GIB = 2**30


def check_memory(needed: float, there: float) -> None:
    """Refuse weights of so many bytes where there are fewer."""
    if needed > there:
        raise OptionError(
            f"a network of this size has weights of {needed / GIB:,.0f} GiB, and this machine has {there / GIB:,.0f} "
            "GiB of memory; make it narrower (hidden, embedding), or take fewer layers"
        )


def flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise OptionError(f"{name} must be True or False, got {shown(value)}")
