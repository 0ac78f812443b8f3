"""Which way round a table of series stands, and which of its columns are what.

wide    a row for every time, a column for every variable          Date,Load,Price
long    a row for every series and time, with a column of ids      unique_id,ds,y,promo
rows    a row for every series, of any length                      V1,V2,V3,V4   (M4's own files)

What is said is taken; the rest is seen from the names of columns and from the first rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from recur.data.series.dates import parse_date
from recur.data.series.records import Record
from recur.data.text.columns import find_ids, looks_like_rows
from recur.data.text.fields import MISSING, number
from recur.errors import OptionError, TextError, shown, unknown

Layout = Literal["auto", "wide", "long", "rows"]

DATES = ("ds", "date", "datetime", "timestamp", "time", "t", "step", "year", "month", "day")
TARGETS = ("y", "value", "target", "values")
"""Names that such columns usually have, in any case."""

HEAD = 1000
"""Rows that decide what a column holds."""


@dataclass(frozen=True)
class Columns:
    """What a user says of the columns; all of it can be left open."""

    targets: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    """Known ahead of their time."""
    past: tuple[str, ...] = ()
    """Known until now."""
    static: tuple[str, ...] = ()
    """The same for all rows of a series."""
    date: str = ""
    id: str = ""
    layout: Layout = "auto"

    @property
    def named(self) -> tuple[str, ...]:
        return (*self.targets, *self.future, *self.past, *self.static, *filter(None, (self.date, self.id)))


def arrange(name: str, header: list[str], rows: list[Record], columns: Columns) -> Columns:
    """The same with everything decided: each column that it names is in the table, once."""
    _check(name, header, columns.named)
    layout = columns.layout
    if layout not in ("auto", "wide", "long", "rows"):
        raise OptionError(f"the layout of a table is auto, wide, long or rows, got {shown(layout)}")
    first = [row.cells[0] for row in rows[:HEAD]]
    if layout == "rows" or (layout == "auto" and not columns.named and looks_like_rows(header, first)):
        return replace(columns, layout="rows", id=columns.id or header[0])
    for line, cells in rows:
        if len(cells) != len(header):
            raise TextError(f"{name}:{line}: {len(cells)} columns, where the header has {len(header)}")
    if layout == "auto":
        date = _date_column(header, rows, columns)
        layout = "long" if _id_column(header, rows, columns, date) else "wide"
    if layout == "wide":
        if columns.id or columns.static:
            raise OptionError("a column of ids and columns that are the same in all rows are for a long table")
        found = _wide(name, header, rows, columns)
    else:
        found = _long(name, header, rows, columns)
    _check(name, header, found.named)
    return found


def _check(name: str, header: list[str], named: Sequence[str]) -> None:
    there, asked = Counter(header), Counter(named)
    for column in asked:
        if column not in there:
            raise TextError(f"{name}: {unknown('column', column, header)}")
        if there[column] > 1:
            raise TextError(f"{name}: column {shown(column)} stands there {there[column]} times")
        if asked[column] > 1:
            raise OptionError(f"column {shown(column)} cannot be several things at once")


def _wide(name: str, header: list[str], rows: list[Record], columns: Columns) -> Columns:
    date = columns.date
    if not date and header[0] not in columns.named and (len(header) > 1 or columns.targets):
        date = header[0] if _tells_time(header[0], rows) else ""
    taken = {date, *columns.future, *columns.past}
    targets = columns.targets or tuple(column for column in header if column not in taken)
    if not targets:
        raise TextError(f"{name}: no column is left to forecast beside {', '.join((*columns.future, *columns.past))}")
    return replace(columns, targets=targets, date=date, layout="wide")


def _long(name: str, header: list[str], rows: list[Record], columns: Columns) -> Columns:
    date = _date_column(header, rows, columns)
    found = replace(columns, date=date, id=_id_column(header, rows, columns, date), layout="long")
    if not found.id:
        raise TextError(f"{name}: no column names the series of each row; say which one does, as with --id NAME")
    if columns.targets:
        return found
    left = _free(header, found.named)
    words = {column for column, place in left.items() if not _is_numbers(rows, place)}
    usual = [column for column in left if column.lower() in TARGETS and column not in words]
    target = next(iter(usual or [column for column in left if column not in words]), None)
    if target is None:
        raise TextError(f"{name}: no column of numbers is left to forecast beside {', '.join(found.named)}")
    if columns.future or columns.past or columns.static:
        return replace(found, targets=(target,))
    del left[target]
    ids = header.index(found.id)
    static = tuple(column for column, place in left.items() if _is_static(rows, place, ids))
    past = tuple(column for column in left if column not in static)
    for column in past:
        if column in words:
            raise TextError(
                f"{name}: column {shown(column)} holds words that change within a series; name what is to be read, "
                f"as in --target {target}"
            )
    return replace(found, targets=(target,), static=static, past=past)


def _free(header: list[str], taken: Sequence[str]) -> dict[str, int]:
    """The columns that are nothing yet, and their places."""
    used = set(taken)
    return {column: place for place, column in enumerate(header) if column not in used}


def _date_column(header: list[str], rows: list[Record], columns: Columns) -> str:
    if columns.date:
        return columns.date
    free = _free(header, columns.named)
    for column, place in free.items():
        if _is_dates(rows, place):
            return column
    usual = {column.lower(): column for column in reversed(free)}
    found = [usual[name] for name in DATES if name in usual]
    return next((column for column in found if _is_numbers(rows, free[column])), "")


def _tells_time(first: str, rows: list[Record]) -> bool:
    """Whether the first column of a wide table has its dates. Numbers are values, unless their name says otherwise or
    they are whole and go one way, as years do; what is no number either was meant as a date, and is refused as one."""
    if first.lower() in DATES or _is_dates(rows, 0) or not _is_numbers(rows, 0):
        return True
    found = [parse_date(row.cells[0]) for row in rows]
    places = [date.place for date in found if date is not None and date.form == "number"]
    apart = [after > before for before, after in pairwise(places) if after != before]
    return len(places) == len(rows) == len(apart) + 1 and len(set(apart)) < 2


def _id_column(header: list[str], rows: list[Record], columns: Columns, date: str) -> str:
    if columns.id or not date:
        return columns.id
    free = _free(header, [name for name in columns.named if name != date]) | {date: header.index(date)}
    return find_ids({name: [row.cells[place] for row in rows] for name, place in free.items()}, date) or ""


def _is_dates(rows: list[Record], place: int) -> bool:
    """All of them, written as dates and not as numbers."""
    found = (parse_date(row.cells[place]) for row in rows[:HEAD])
    return all(date is not None and date.form != "number" for date in found)


def _is_numbers(rows: list[Record], place: int) -> bool:
    """All but those that are missing, of which one is not."""
    cells = [cell for row in rows if (cell := row.cells[place]).lower() not in MISSING]
    return bool(cells) and all(number(cell) is not None for cell in cells)


def _is_static(rows: list[Record], place: int, ids: int) -> bool:
    found: dict[str, str] = {}
    return all(found.setdefault(row.cells[ids], row.cells[place]) == row.cells[place] for row in rows)
