"""The rows of a CSV with their lines, and the numbers in their cells."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from recur.data.series.dates import Date, Form, Frequency, infer_frequency, parse_date, too_sparse
from recur.data.series.panel import Panel, Series
from recur.data.text.labelled import numbered_lines
from recur.data.text.recognition import LARGEST, MISSING, find_ids, looks_like_rows, no_commas, number
from recur.data.text.stream import Floats, Ids
from recur.errors import OptionError, TextError, shown, unknown
from recur.i18n import Message


class Record(NamedTuple):
    line: int
    cells: list[str]


def read_records(lines: Iterable[str], name: str, ragged: bool = False) -> tuple[list[str], list[Record]]:
    """The names of the columns, and the rows below them, cells without spaces around them; `ragged` ones may have
    fewer cells than there are columns."""
    reader = csv.reader(lines, strict=True)
    header: list[str] = []
    body: list[Record] = []
    empty = 0  # the first of the empty rows since the last that was not
    try:
        for cells in ([cell.strip() for cell in row] for row in reader):
            if not header:
                header = cells
                if len(header) == 1 and (why := no_commas(header[0], name)):
                    raise TextError(why)
                if not any(header):
                    raise TextError(f"{name}: the first line must name the columns, and there is none")
            elif not any(cells):
                empty = empty or reader.line_num
            elif empty:
                raise TextError(f"{name}:{empty}: an empty row in the middle of the series")
            elif len(cells) > len(header) or (len(cells) < len(header) and not ragged):
                raise TextError(
                    Message(
                        "{where}: {n} columns, where the header has {m}",
                        where=f"{name}:{reader.line_num}",
                        n=len(cells),
                        m=len(header),
                    )
                )
            else:
                body.append(Record(reader.line_num, cells))
    except csv.Error as error:
        raise TextError(f"{name}:{reader.line_num} is not a CSV: {error}") from None
    if not header:
        raise TextError(f"{name}: the first line must name the columns, and there is none")
    if not body:
        raise TextError(f"{name} has a header and no rows")
    return header, body


def numbers(name: str, column: str, cells: Sequence[str], lines: Sequence[int]) -> Floats:
    """(rows,): NaN where a value is missing; what is neither is named with its line."""
    try:
        found = np.array(cells, dtype=np.float64)  # the usual case, at the speed of C
        if np.isfinite(found).all() and (np.abs(found) <= LARGEST).all():
            return found
    except ValueError:
        pass
    places = zip(cells, lines, strict=True)
    return np.array([_number(f"{name}:{line}: {column}", cell) for cell, line in places])


def _number(where: str, cell: str) -> float:
    if cell.lower() in MISSING:
        return np.nan
    value = number(cell)
    if value is None:
        raise TextError(f"{where} is {shown(cell)}, which is not a number")
    if not np.isfinite(value):
        raise TextError(f"{where} is {shown(cell)}, which is not finite")
    if abs(value) > LARGEST:
        raise TextError(f"{where} is {shown(cell)}, beyond {LARGEST:g}, what can be scaled")
    return value


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
            raise TextError(
                Message(
                    "{where}: {n} columns, where the header has {m}",
                    where=f"{name}:{line}",
                    n=len(cells),
                    m=len(header),
                )
            )
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


@dataclass(frozen=True)
class _Part:
    """One series of a file, row by row, before it is known how far rows are apart."""

    id: str
    name: str
    """Of the file."""
    lines: list[int]
    values: Floats
    future: Floats
    past: Floats
    static: tuple[str, ...]
    dates: list[str]
    places: Ids
    """As many as rows, or none without dates."""


@dataclass(frozen=True)
class _File:
    name: str
    columns: Columns
    parts: list[_Part]
    form: Form | None


def read_panel(names: Sequence[str], columns: Columns | None = None) -> Panel:
    """Several files are one panel: a wide one is a series, named like the file."""
    files = [_parse([line for _, line in numbered_lines(name)], name, columns or Columns()) for name in names]
    return _panel(files)


def parse_panel(lines: Iterable[str], name: str, columns: Columns | None = None) -> Panel:
    """Of the lines of a file."""
    return _panel([_parse(lines, name, columns or Columns())])


# A file ---------------------------------------------------------------------------------------------------------


def _parse(lines: Iterable[str], name: str, columns: Columns) -> _File:
    header, rows = read_records(lines, name, ragged=True)
    columns = arrange(name, header, rows, columns)
    if columns.layout == "rows":
        return _parse_rows(name, header, rows, columns)
    places = {column: k for k, column in enumerate(header)}
    dates, form = _dates(name, columns.date, rows, places[columns.date]) if columns.date else ([], None)
    groups: dict[str, list[int]] = {}
    if columns.layout == "long":
        for k, row in enumerate(rows):
            groups.setdefault(row.cells[places[columns.id]], []).append(k)
    else:
        groups[stem_of(name)] = list(range(len(rows)))
    table = {column: _column(name, column, rows, places[column]) for column in _numeric(columns)}
    parts = [_part(name, id_, rows, at, columns, places, table, dates) for id_, at in groups.items()]
    return _File(name, columns, parts, form)


def _numeric(columns: Columns) -> tuple[str, ...]:
    return (*columns.targets, *columns.future, *columns.past)


def _column(name: str, column: str, rows: list[Record], place: int) -> Floats:
    return numbers(name, column, [row.cells[place] for row in rows], [row.line for row in rows])


def _part(
    name: str,
    id_: str,
    rows: list[Record],
    at: list[int],
    columns: Columns,
    places: dict[str, int],
    table: dict[str, Floats],
    dates: list[Date],
) -> _Part:
    if dates:
        at = sorted(at, key=lambda k: dates[k].place)
    values, future, past = (
        np.stack([table[column][at] for column in group], axis=1) if group else np.zeros((len(at), 0))
        for group in (columns.targets, columns.future, columns.past)
    )
    written = [rows[k].cells[places[columns.date]] for k in at] if dates else []
    static = tuple(_same(name, column, [rows[k] for k in at], places[column]) for column in columns.static)
    lines, found = [rows[k].line for k in at], np.array([dates[k].place for k in at] if dates else [], np.int64)
    return _Part(id_, name, lines, values, future, past, static, written, found)


def _same(name: str, column: str, rows: list[Record], place: int) -> str:
    first = rows[0].cells[place]
    for line, cells in rows:
        if cells[place] != first:
            raise TextError(
                f"{name}:{line}: {column} is {shown(cells[place])}, and {shown(first)} before; it is static"
            )
    return first


def _dates(name: str, column: str, rows: list[Record], place: int) -> tuple[list[Date], Form]:
    seen: dict[str, Date] = {}  # in a long table every date comes once a series
    found: list[Date] = []
    for line, cells in rows:
        cell = cells[place]
        date = seen.get(cell) or parse_date(cell)
        if date is None:
            where = f"{name}:{line}: {column} is {shown(cell)}"
            raise TextError(f"{where}, not a date; write 1949, 1949-01 or 1949-01-31")
        if found and date.form != found[0].form and not {date.form, found[0].form} <= {"date", "time"}:
            first = rows[0].cells[place]
            raise TextError(f"{name}:{line}: {column} is {shown(cell)}, written otherwise than {shown(first)}")
        seen[cell] = date
        found.append(date)
    return found, "time" if any(date.form == "time" for date in found) else found[0].form


def _parse_rows(name: str, header: list[str], rows: list[Record], columns: Columns) -> _File:
    """A row a series: empty cells at its end are none of it, empty cells before are gaps; dates may stand above."""
    own = header.index(columns.id)
    statics = [header.index(column) for column in columns.static]
    kept = [k for k in range(len(header)) if k != own and k not in statics]
    above = [date for k in kept if (date := parse_date(header[k])) is not None and date.form != "number"]
    dated = len(above) == len(kept) > 0
    if dated:
        order = sorted(range(len(kept)), key=lambda k: above[k].place)
        kept, above = [kept[k] for k in order], [above[k] for k in order]
    parts, seen = [], dict[str, int]()
    for line, cells in rows:
        id_ = cells[own] if own < len(cells) else ""
        if id_ in seen:
            raise TextError(f"{name}:{line}: series {shown(id_)} stands in line {seen[id_]} already")
        seen[id_] = line
        row = [cells[k] if k < len(cells) else "" for k in kept]
        while row and row[-1].lower() in MISSING:
            row.pop()
        values = numbers(name, f"series {shown(id_)}", row, [line] * len(row))[:, None]
        empty = np.zeros((len(row), 0))
        places = np.array([date.place for date in above[: len(row)]] if dated else [], np.int64)
        static = tuple(cells[k] if k < len(cells) else "" for k in statics)
        written = [header[k] for k in kept[: len(row)]] if dated else []
        parts.append(_Part(id_, name, [line] * len(row), values, empty, empty, static, written, places))
    return _File(name, replace(columns, targets=("value",)), parts, above[0].form if dated else None)


# From rows to steps -----------------------------------------------------------------------------------------------


def _panel(files: Sequence[_File]) -> Panel:
    first = files[0]
    for other in files[1:]:
        _check_alike(first, other)
    parts = [part for file in files for part in file.parts]
    seen: dict[str, str] = {}
    for part in parts:
        if part.id in seen:
            raise TextError(f"series {shown(part.id)} stands in {seen[part.id]} and in {part.name}; name one of them")
        seen[part.id] = part.name
    frequency = None
    if first.form is not None:
        for part in parts:
            _check_once(part, first.columns.date)
        form: Form = "time" if any(file.form == "time" for file in files) else first.form
        frequency = infer_frequency([part.places for part in parts], form)
    categories = _categories(first.columns.static, parts)
    numbered = {column: {cell: k for k, cell in enumerate(cells)} for column, cells in categories.items()}
    series = [_series(part, frequency, first.columns, numbered) for part in parts]
    kept = tuple(one for one in series if one is not None)
    if not kept:
        column = first.columns.targets[0]
        raise TextError(f"{first.name}: column {shown(column)} has no value at all")
    c = first.columns
    return Panel(first.name, kept, c.targets, c.future, c.past, c.static, categories, frequency)


def _check_alike(first: _File, other: _File) -> None:
    if other.columns.layout != first.columns.layout:
        a, b = f"{first.name} is {first.columns.layout}", f"{other.name} is {other.columns.layout}"
        raise TextError(f"{a} and {b} (a row for each time, or an id in each row): they are no one panel")
    own, others = _numeric(first.columns), _numeric(other.columns)
    if own != others or first.columns.static != other.columns.static:
        raise TextError(f"{other.name} has the columns {', '.join(others)}, where {first.name} has {', '.join(own)}")
    if (first.form is None) != (other.form is None):
        dated, bare = (first, other) if first.form else (other, first)
        raise TextError(f"{dated.name} has a column of dates, and {bare.name} has none")
    if first.form != other.form and not {first.form, other.form} <= {"date", "time"}:
        raise TextError(f"{other.name} writes its dates otherwise than {first.name}")


def _check_once(part: _Part, column: str) -> None:
    twice = np.flatnonzero(np.diff(part.places) == 0)
    if len(twice):
        k = int(twice[0])
        where = (
            f"{part.name}:{max(part.lines[k : k + 2])}: {part.dates[k + 1]} stands twice in {column or 'the header'}"
        )
        raise TextError(f"{where}; a series has one row for each time, several series have a column of ids (--id)")


def _categories(static: Sequence[str], parts: Sequence[_Part]) -> dict[str, tuple[str, ...]]:
    """Of the columns that hold anything but numbers."""
    found = {}
    for k, column in enumerate(static):
        cells = sorted({part.static[k] for part in parts if part.static[k].lower() not in MISSING})
        try:
            finite = bool(np.isfinite(np.array(cells, dtype=np.float64)).all())
        except ValueError:
            finite = False
        if not finite:
            found[column] = tuple(cells)
    return found


def _series(
    part: _Part, frequency: Frequency | None, columns: Columns, categories: Mapping[str, Mapping[str, int]]
) -> Series | None:
    """On the steps of a frequency, from its first value to its last; None where it has none."""
    values, future, past = part.values, part.future, part.past
    first = 0
    if frequency is not None and len(part.places):
        steps = frequency.steps(part.places)
        if too_sparse(steps):
            k = int(np.argmax(np.diff(part.places)))
            raise TextError(
                f"{part.name}:{part.lines[k + 1]}: dates come unevenly, the next common step is {frequency.name}: from "
                f"{part.dates[k]} to {part.dates[k + 1]} there would be {int(steps[k + 1] - steps[k]) - 1:,} gaps"
            )
        values, future, past = (_spread(steps, rows) for rows in (values, future, past))
        first = int(part.places[0])
    there = np.flatnonzero((~np.isnan(values)).any(1))
    if not len(there):
        return None
    begin, end = int(there[0]), int(there[-1]) + 1
    start = begin
    if frequency is not None:
        first = int(frequency.places(first, 1, begin)[0])
        start = frequency.step(first)
    static = [_static(cell, categories.get(name)) for name, cell in zip(columns.static, part.static, strict=True)]
    return Series(part.id, values[begin:end], future[begin:], past[begin:end], np.array(static), start, first)


def _spread(steps: Ids, rows: Floats) -> Floats:
    """Rows at their steps, NaN at those between."""
    if int(steps[-1]) + 1 == len(rows):
        return rows
    found = np.full((int(steps[-1]) + 1, rows.shape[1]), np.nan)
    found[steps] = rows
    return found


def _static(cell: str, categories: Mapping[str, int] | None) -> float:
    if cell.lower() in MISSING:
        return np.nan
    return float(cell) if categories is None else float(categories[cell])


def stem_of(name: str) -> str:
    return Path(name).name.removesuffix(".gz").removesuffix(".csv") or name
