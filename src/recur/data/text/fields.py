"""What the fields of a table hold: numbers, nothing, or dates: whole numbers, YYYY, YYYY-MM, YYYYQ1 or YYYY-MM-DD, with
or without a time; a slash may stand for the hyphen, and zeros in front may be missing."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from recur.errors import shown

MISSING = frozenset(("", "na", "nan", "null", "none", "?"))
"""What stands, in any case, where a value is missing."""

LARGEST = 1e100
"""Numbers beyond have no mean and no deviation that a computer could hold."""

_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
_MONTH = re.compile(r"(\d{4})[-/](\d{1,2})")
_QUARTER = re.compile(r"(\d{4})-?[Qq]([1-4])")
_DAY = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?", re.ASCII)


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
    if quarter := _QUARTER.fullmatch(date):
        return Position("month", (12.0 * int(quarter[1]) + 3 * int(quarter[2]) - 2,))
    when = time_of(date)
    if when is None:
        return None
    seconds = (when - datetime(1, 1, 1)).total_seconds()
    months = 12.0 * when.year + when.month + (when.day * 86400 + seconds % 86400) / 1e9
    return Position("date", (months, seconds))


def time_of(date: str) -> datetime | None:
    """Of a day, with or without a time; where it says how far its clock is from Greenwich's, the time there: an hour
    that comes twice in autumn is told apart."""
    try:
        if plain := _DAY.fullmatch(date):
            year, month, day, hour, minute, second = (int(part or 0) for part in plain.groups())
            return datetime(year, month, day, hour, minute, second)
        when = datetime.fromisoformat(date)
        return when if when.tzinfo is None else when.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def no_commas(header: str, name: str) -> str | None:
    """What is wrong with a table whose first line has semicolons or tabs in the place of commas, and what helps."""
    for mark, called in ((";", "semicolons"), ("\t", "tabs")):
        if mark in header and "," not in header:
            written = "tr ',;' '.,'" if mark == ";" else "tr '\\t' ','"
            return f"{name}: {called} between its columns, where commas are read; {written} < {shown(name)} > new.csv"
    return None
