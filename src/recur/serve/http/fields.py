"""Fields of a request, checked, and numbers of a response."""

from __future__ import annotations

import re
from typing import TypeVar

from recur.errors import OptionError
from recur.i18n import Message
from recur.utils.types import JsonObject

LARGEST = 1e300
SURROGATE = re.compile("[\ud800-\udfff]")

Value = TypeVar("Value", int, float, str)


def field(request: JsonObject, name: str, default: Value, low: float = 0, high: float = 1e9) -> Value:
    """A field of the type of its default and within its bounds; the default where it is missing."""
    kind = type(default)
    value = request.get(name, default)
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise OptionError(
            Message("{name} must be {kind}, got {given}", name=name, kind=kind.__name__, given=type(value).__name__)
        )
    if isinstance(value, str):
        if not value.isascii() and SURROGATE.search(value):
            raise OptionError(Message("{name} has half of a surrogate pair in it, which is no character", name=name))
    elif not low <= value <= high:  # before it is a float, which has no room for every int
        raise OptionError(
            Message(
                "{name} must lie in {low} … {high}, got {given}",
                name=name,
                low=f"{low:g}",
                high=f"{high:g}",
                given=str(value)[:40],
            )
        )
    checked: Value = kind(value)
    return checked


def number(value: object) -> float | None:
    """A number that JSON can hold; None for anything else, infinity among it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        return None
    return float(value)
