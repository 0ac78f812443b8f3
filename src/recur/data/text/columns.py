"""What the columns of a CSV hold: dates or steps, numbers, or words; and whether its rows are of several series."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from recur.data.text.fields import MISSING, number, position

IDS = ("unique_id", "series_id", "item_id", "ts_id", "id", "series", "item")
"""Names that a column of ids usually has, in any case."""

_NUMBERED = re.compile(r"[A-Za-z_]{0,8}(\d{1,6})")


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
    ids: str | None = None
    """The column that names the series of each row, where there are several."""


def read_columns(lines: Sequence[str]) -> Columns | None:
    """None for what is no table: a header and rows below it, all with as many fields."""
    header, *rows = _fields(lines) or [()]
    if not rows or {*map(len, rows)} != {len(header)}:
        return None
    columns = list(zip(*rows, strict=True))
    kinds = [(name, _kind(fields)) for name, fields in zip(header, columns, strict=True)]
    dates = next((name for name, kind in kinds if kind == "dates"), None)
    by_name = dict(zip(header, columns, strict=True))
    ids = find_ids(by_name, dates) if dates else None
    steps = header[0] if dates is None and len(header) > 1 and _count_evenly(columns[0]) else None
    return Columns(
        header,
        dates,
        steps,
        numbers=[name for name, kind in kinds if kind == "numbers" and name != steps],
        words=[name for name, kind in kinds if kind in ("words", "dates") and name not in (dates, ids)],
        rows=len(rows),
        ids=ids,
    )


def find_ids(columns: Mapping[str, Sequence[str]], date: str) -> str | None:
    """Of the columns by their names, the one that tells several series apart: by its name, if its values repeat, or one
    of words beside which no date comes twice."""
    free = {name: fields for name, fields in columns.items() if name != date}
    usual = {name.lower(): name for name in reversed(free)}
    named = (usual[name] for name in IDS if name in usual)
    found = next((name for name in named if _repeats(free[name])), None)
    if found is not None or not _repeats(columns[date]):
        return found
    words = (name for name, fields in free.items() if _kind(fields) == "words")
    return next((name for name in words if not _repeats(list(zip(columns[date], free[name], strict=True)))), None)


def looks_like_rows(header: Sequence[str], first: Sequence[str]) -> bool:
    """Whether each row is a series: V1, V2, V3 … or dates above the values, and another id in front of each row."""
    if len(header) < 3 or _repeats(first) or any(cell.lower() in MISSING for cell in first):
        return False
    counted = [int(match[1]) for name in header[1:] if (match := _NUMBERED.fullmatch(name))]
    in_order = len(counted) == len(header) - 1 and all(b == a + 1 for a, b in itertools.pairwise(counted))
    if not in_order and _kind(header[1:]) != "dates":
        return False
    # Dates down the side are a wide table, even of variables x1, x2 and x3.
    return not any(number(cell) is not None or position(cell) is not None for cell in first)


def _repeats(values: Sequence[object]) -> bool:
    return len(set(values)) < len(values)


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
