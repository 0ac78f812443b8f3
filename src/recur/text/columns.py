"""What the columns of a CSV hold: dates or steps, numbers, or words."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

from recur.text.fields import MISSING, number, position


class Columns(NamedTuple):
    """The names of the columns, by what they hold."""

    header: tuple[str, ...]
    dates: str | None
    """The first column that holds nothing but dates."""
    steps: str | None
    """Without dates: the first column, if it counts evenly."""
    numbers: list[str]
    """The other columns of numbers, some of which may be missing."""
    words: list[str]
    """All else, but for those that are empty."""
    rows: int


def read_columns(lines: Sequence[str]) -> Columns | None:
    """None for what is no table: a header and rows below it, all with as many fields."""
    header, *rows = _fields(lines) or [()]
    if not rows or {*map(len, rows)} != {len(header)}:
        return None
    columns = list(zip(*rows, strict=True))
    kinds = [(name, _kind(fields)) for name, fields in zip(header, columns, strict=True)]
    dates = next((name for name, kind in kinds if kind == "dates"), None)
    steps = header[0] if dates is None and len(header) > 1 and _count_evenly(columns[0]) else None
    return Columns(
        header,
        dates,
        steps,
        numbers=[name for name, kind in kinds if kind == "numbers" and name != steps],
        words=[name for name, kind in kinds if kind in ("words", "dates") and name != dates],
        rows=len(rows),
    )


def _fields(lines: Sequence[str]) -> list[tuple[str, ...]]:
    try:
        return [tuple(map(str.strip, row)) for row in csv.reader(lines) if any(row)]
    except csv.Error:
        return []


def _kind(fields: Sequence[str]) -> Literal["dates", "numbers", "words", "nothing"]:
    if all((place := position(field)) is not None and place.kind != "number" for field in fields):
        return "dates"
    there = [field for field in fields if field.lower() not in MISSING]
    if not there:
        return "nothing"
    return "numbers" if all(number(field) is not None for field in there) else "words"


def _count_evenly(fields: Sequence[str]) -> bool:
    """1, 2, 3 or 1700, 1701, 1702: three of them at least, for any two are evenly apart."""
    places = [place.counted[0] for field in fields if (place := position(field)) is not None]
    steps = {b - a for a, b in itertools.pairwise(places)}
    return len(places) == len(fields) >= 3 and len(steps) == 1 and min(steps) > 0
