"""Panels of series from CSV files: wide, long or a row a series, as layout.py tells them apart.

Dates that are missing and cells that are empty (or NA, NaN, null, ?) are gaps. What is not a number, or comes twice, is
named with its line. Rows at the end without a target are the future for which covariates are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from recur.errors import TextError, shown
from recur.series.dates import Date, Form, Frequency, infer_frequency, parse_date, too_sparse
from recur.series.layout import Columns, arrange
from recur.series.panel import Panel, Series
from recur.series.records import Record, numbers, read_records
from recur.text.arrays import Floats, Ids
from recur.text.fields import MISSING
from recur.text.lines import numbered_lines


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
    series = [_series(part, frequency, first.columns, categories) for part in parts]
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
    part: _Part, frequency: Frequency | None, columns: Columns, categories: dict[str, tuple[str, ...]]
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


def _static(cell: str, categories: tuple[str, ...] | None) -> float:
    if cell.lower() in MISSING:
        return np.nan
    return float(cell) if categories is None else float(categories.index(cell))


def stem_of(name: str) -> str:
    return Path(name).name.removesuffix(".gz").removesuffix(".csv") or name
