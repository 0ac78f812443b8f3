"""Options of a layer, checked before anything is made of them."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from recur.errors import OptionError


def whole(name: str, value: object, least: int) -> int:
    """A whole number, of Python's or NumPy's, that is large enough."""
    if isinstance(value, SupportsIndex) and not isinstance(value, bool) and operator.index(value) >= least:
        return operator.index(value)
    raise OptionError(f"{name} must be a whole number ≥ {least}, got {value!r}")


def flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise OptionError(f"{name} must be True or False, got {value!r}")
