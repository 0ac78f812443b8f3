"""Series from a CSV: a row for every time, in order, a column for every series and every covariate.

    Date,Passengers          dates: whole numbers, YYYY, YYYY-MM or YYYY-MM-DD, with or without a time, one step apart
    1949-01,112

What is missing, not a number, or out of step is named with its line: nothing is filled in or left out. Rows at the end
whose targets are all empty and whose covariates are there are the future that is asked for.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from recur.errors import TextError, unknown

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class SeriesTable:
    name: str
    targets: tuple[str, ...]
    covariates: tuple[str, ...]
    values: Floats
    """(T, targets): all of them known."""
    known: Floats
    """(T + ahead, covariates): known ahead of their time."""
    dates: tuple[str, ...]
    """(T + ahead): of every row; empty without a column of dates."""
    start: int = 0
    """How many steps the first date lies behind a fixed one, so that files agree on the phase of a season."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def ahead(self) -> int:
        """Rows behind the last known value."""
        return len(self.known) - len(self.values)


def read_table(name: str, target: str = "", covariates: str = "", date: str = "") -> SeriesTable:
    from recur.text import numbered_lines

    return parse_table([line for _, line in numbered_lines(name)], name, target, covariates, date)


def parse_table(lines: Iterable[str], name: str, target: str = "", covariates: str = "", date: str = "") -> SeriesTable:
    """Columns by name, several between commas. Without `target` all columns of numbers are, but for the dates; without
    `date` the first column is one, if it is neither a target nor a covariate."""
    try:
        rows = list(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise TextError(f"{name} is not a CSV: {error}") from None
    if not rows or not any(cell.strip() for cell in rows[0]):
        raise TextError(f"{name}: the first line must name the columns, and there is none")
    header = [cell.strip() for cell in rows[0]]
    body = [(number, row) for number, row in enumerate(rows[1:], start=2) if any(cell.strip() for cell in row)]
    for number, row in body:
        if len(row) != len(header):
            raise TextError(f"{name}:{number}: {len(row)} columns, where the header has {len(header)}")
    blank = [number for number, row in enumerate(rows[1:-1], start=2) if not any(cell.strip() for cell in row)]
    if blank and blank[0] < body[-1][0]:
        raise TextError(f"{name}:{blank[0]}: an empty row in the middle of the series")
    if not body:
        raise TextError(f"{name} has a header and no rows")
    wanted = _names(target)
    extra = _names(covariates)
    dated = date or (header[0] if header[0] not in (*wanted, *extra) and (len(header) > 1 or wanted) else "")
    targets = wanted or tuple(column for column in header if column not in (dated, *extra))
    for column in (*targets, *extra, *([dated] if dated else [])):
        if header.count(column) != 1:
            twice = f"{name}: column {column!r} stands there {header.count(column)} times"
            raise TextError(twice if column in header else f"{name}: {unknown('column', column, header)}")
    places = {column: header.index(column) for column in header}
    past = len(body)  # trailing rows that hold covariates and no target are still to come
    while past and extra and not any(body[past - 1][1][places[column]].strip() for column in targets):
        past -= 1
    if not past:
        raise TextError(f"{name}: column {targets[0]!r} has no value at all")
    values = np.array([[_number(name, n, row, column, places) for column in targets] for n, row in body[:past]])
    known = np.array([[_number(name, n, row, column, places) for column in extra] for n, row in body])
    dates = tuple(row[places[dated]].strip() for _, row in body) if dated else ()
    start = _first_step(name, dated, dates, [number for number, _ in body]) if dates else 0
    return SeriesTable(name, targets, extra, values, known.reshape(len(body), len(extra)), dates, start)


def _names(columns: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in columns.split(",") if part.strip())


def _number(name: str, line: int, row: Sequence[str], column: str, places: dict[str, int]) -> float:
    cell = row[places[column]].strip()
    if not cell or cell.lower() in ("na", "nan", "null", "none", "?"):
        raise TextError(f"{name}:{line}: {column} is missing; fill it in, or cut the series there")
    try:
        value = float(cell)
    except ValueError:
        raise TextError(f"{name}:{line}: {column} is {cell!r}, which is not a number") from None
    if not np.isfinite(value):
        raise TextError(f"{name}:{line}: {column} is {cell}, which is not finite")
    return value


_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
_MONTH = re.compile(r"(\d{4})-(\d{1,2})")


def _first_step(name: str, column: str, dates: Sequence[str], lines: Sequence[int]) -> int:
    """All dates are one step apart, a number, some months or a span of time: the first one's place in steps."""
    places = [_place(name, column, date, line) for date, line in zip(dates, lines, strict=True)]
    kinds = {kind for kind, _ in places}
    if len(kinds) > 1:
        odd = next(k for k, (kind, _) in enumerate(places) if kind != places[0][0])
        raise TextError(f"{name}:{lines[odd]}: {column} is {dates[odd]!r}, written otherwise than {dates[0]!r}")
    for option in range(len(places[0][1])):  # by months, if that is even; else by seconds
        steps = [b[1][option] - a[1][option] for a, b in itertools.pairwise(places)]
        if not steps or (steps[0] > 0 and len(set(steps)) == 1):
            return round(places[0][1][option] / (steps[0] if steps else 1))
    usual = max(set(steps), key=steps.count)
    odd = next(k for k, step in enumerate(steps) if step != usual or step <= 0)
    what = "a gap" if steps[odd] > usual > 0 else "the same date twice" if not steps[odd] else "an uneven step"
    raise TextError(
        f"{name}:{lines[odd + 1]}: {what} in {column}, from {dates[odd]} to {dates[odd + 1]}; "
        "the rows must be in order and one step apart"
    )


def _place(name: str, column: str, date: str, line: int) -> tuple[str, tuple[float, ...]]:
    """What kind of date it is, and its place on a line: counted in months where days of the month allow, in seconds."""
    if _WHOLE.fullmatch(date):
        return "number", (float(date),)
    if month := _MONTH.fullmatch(date):
        year, part = int(month[1]), int(month[2])
        if 1 <= part <= 12:
            return "month", (12 * year + part,)
    try:
        when = datetime.fromisoformat(date).replace(tzinfo=None)
    except ValueError:
        raise TextError(f"{name}:{line}: {column} is {date!r}, not a date; write 1949, 1949-01 or 1949-01-31") from None
    days = (when - datetime(1, 1, 1)).total_seconds()
    months = 12.0 * when.year + when.month + (when.day * 86400 + days % 86400) / 1e9
    return "date", (months, days)
