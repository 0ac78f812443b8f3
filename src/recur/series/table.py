"""Series from a CSV: a row for every time, in order, a column for every series and every covariate.

    Date,Passengers          dates: whole numbers, YYYY, YYYY-MM or YYYY-MM-DD, with or without a time, one step apart
    1949-01,112

What is missing, not a number, or out of step is named with its line: nothing is filled in or left out. Rows at the end
whose targets are all empty and whose covariates are there are the future that is asked for.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from recur.errors import TextError, shown, unknown
from recur.series.records import Record, read_records
from recur.text.arrays import Floats as Floats
from recur.text.fields import LARGEST, MISSING, Position, number, position
from recur.text.lines import numbered_lines


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


def read_table(name: str, targets: Sequence[str] = (), covariates: Sequence[str] = (), date: str = "") -> SeriesTable:
    """A file's table; see `parse_table`."""
    return parse_table([line for _, line in numbered_lines(name)], name, targets, covariates, date)


def parse_table(
    lines: Iterable[str], name: str, targets: Sequence[str] = (), covariates: Sequence[str] = (), date: str = ""
) -> SeriesTable:
    """Columns by name. Without `targets` all columns of numbers are, but for the dates; without `date` the first column
    is one, if it is neither a target nor a covariate."""
    header, rows = read_records(lines, name)
    targets, covariates, date = _columns(name, header, _names(targets), _names(covariates), date)
    places = {column: k for k, column in enumerate(header)}
    past = _past(rows, [places[column] for column in targets]) if covariates else len(rows)
    if not past:
        raise TextError(f"{name}: column {targets[0]!r} has no value at all")
    values = _numbers(name, places, rows[:past], targets)
    known = _numbers(name, places, rows, covariates)
    dates = tuple(row.cells[places[date]] for row in rows) if date else ()
    start = _first_step(name, date, dates, [row.line for row in rows]) if date else 0
    return SeriesTable(name, targets, covariates, values, known, dates, start)


def _names(columns: Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)  # one name without its list is easily written


def _columns(
    name: str, header: list[str], targets: tuple[str, ...], covariates: tuple[str, ...], date: str
) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The columns of targets, of covariates and of dates, each of them in the table, once."""
    if not date and header[0] not in (*targets, *covariates) and (len(header) > 1 or targets):
        date = header[0]
    taken = {date, *covariates}
    targets = targets or tuple(column for column in header if column not in taken)
    if not targets:
        raise TextError(f"{name}: no column is left to forecast beside {', '.join(covariates)}")
    there = Counter(header)
    for column in (*targets, *covariates, *([date] if date else [])):
        if column not in there:
            raise TextError(f"{name}: {unknown('column', column, header)}")
        if there[column] > 1:
            raise TextError(f"{name}: column {shown(column)} stands there {there[column]} times")
    return targets, covariates, date


def _past(rows: list[Record], targets: list[int]) -> int:
    """How many rows have happened: those at the end that hold covariates and no target are still to come."""
    past = len(rows)
    while past and not any(rows[past - 1].cells[place] for place in targets):
        past -= 1
    return past


def _numbers(name: str, places: dict[str, int], rows: list[Record], columns: tuple[str, ...]) -> Floats:
    """(rows, columns)"""
    found = np.empty((len(rows), len(columns)))
    for k, column in enumerate(columns):
        place = places[column]
        found[:, k] = [_number(f"{name}:{row.line}: {column}", row.cells[place]) for row in rows]
    return found


def _number(where: str, cell: str) -> float:
    if cell.lower() in MISSING:
        raise TextError(f"{where} is missing; fill it in, or cut the series there")
    value = number(cell)
    if value is None:
        raise TextError(f"{where} is {shown(cell)}, which is not a number")
    if not np.isfinite(value):
        raise TextError(f"{where} is {cell}, which is not finite")
    if abs(value) > LARGEST:
        raise TextError(f"{where} is {shown(cell)}, beyond {LARGEST:g}, what can be scaled")
    return value


def _first_step(name: str, column: str, dates: Sequence[str], lines: Sequence[int]) -> int:
    """All dates are one step apart, a number, some months or a span of time: the first one's place in steps."""
    places = [_position(f"{name}:{line}: {column}", date) for date, line in zip(dates, lines, strict=True)]
    for place, date, line in zip(places, dates, lines, strict=True):
        if place.kind != places[0].kind:
            raise TextError(f"{name}:{line}: {column} is {date!r}, written otherwise than {dates[0]!r}")
    steps: list[float] = []
    for unit in range(len(places[0].counted)):  # by months, if that is even; else by seconds
        counted = [place.counted[unit] for place in places]
        steps = [b - a for a, b in itertools.pairwise(counted)] or [1.0]
        if steps[0] > 0 and len(set(steps)) == 1:
            return round(counted[0] / steps[0])
    odd, what = _odd_step(steps)
    raise TextError(
        f"{name}:{lines[odd + 1]}: {what} in {column}, from {dates[odd]} to {dates[odd + 1]}; "
        "the rows must be in order and one step apart"
    )


def _odd_step(steps: list[float]) -> tuple[int, str]:
    """The first step that is not as most of them, and what it is."""
    usual = max(set(steps), key=steps.count)
    odd = next(k for k, step in enumerate(steps) if step != usual or step <= 0)
    if not steps[odd]:
        return odd, "the same date twice"
    return odd, "a gap" if steps[odd] > usual > 0 else "an uneven step"


def _position(where: str, date: str) -> Position:
    found = position(date)
    if found is None:
        raise TextError(f"{where} is {shown(date)}, not a date; write 1949, 1949-01 or 1949-01-31")
    return found
