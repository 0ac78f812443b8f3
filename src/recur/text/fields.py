"""What the fields of a table hold: numbers, nothing, or dates (whole numbers, YYYY, YYYY-MM or YYYY-MM-DD, with or
without a time)."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, NamedTuple

MISSING = frozenset(("", "na", "nan", "null", "none", "?"))
"""What stands, in any case, where a value is missing."""

LARGEST = 1e100
"""Numbers beyond have no mean and no deviation that a computer could hold."""

_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
_MONTH = re.compile(r"(\d{4})-(\d{1,2})")


class Position(NamedTuple):
    """Where a date lies on a line."""

    kind: Literal["number", "month", "date"]
    """How it is written."""
    counted: tuple[float, ...]
    """Its place; of days both in months, even where all are the same day of their month, and in seconds."""


def number(field: str) -> float | None:
    """None for what is no number, or missing."""
    try:
        return None if field.lower() in MISSING else float(field)
    except ValueError:
        return None


def position(date: str) -> Position | None:
    """None for what is no date."""
    if _WHOLE.fullmatch(date):
        place = float(date)
        return Position("number", (place,)) if abs(place) <= 2**53 else None  # beyond, steps of 1 are none
    if month := _MONTH.fullmatch(date):
        year, part = int(month[1]), int(month[2])
        if 1 <= part <= 12:
            return Position("month", (12.0 * year + part,))
    try:
        when = datetime.fromisoformat(date).replace(tzinfo=None)
    except ValueError:
        return None
    seconds = (when - datetime(1, 1, 1)).total_seconds()
    months = 12.0 * when.year + when.month + (when.day * 86400 + seconds % 86400) / 1e9
    return Position("date", (months, seconds))
