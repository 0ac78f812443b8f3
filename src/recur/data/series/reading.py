"""Panels of series from CSV files: layout, columns, dates, and joining of panels.

wide   one row per time, one column per variable
long   one row per time and series, with a column of ids
rows   one row per series
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from recur.data.csv_files import MISSING, CsvRow, Date, DateFormat, parse_date, parse_number, parse_numbers
from recur.data.locales import LocaleFormat, localise
from recur.data.reading import Reading
from recur.data.series.dates import Frequency, infer_frequency, too_sparse
from recur.data.series.panel import Panel, Series
from recur.data.text.labelled import numbered_lines
from recur.data.text.recognition import find_id_column, has_series_per_row
from recur.data.text.stream import Floats, Ids
from recur.data.text.tables import PACKED, TABLES, Table, delimited, is_delimited, is_table, read_table
from recur.errors import OptionError, TextError, shown, unknown
from recur.i18n import Message

TableLayout = Literal["auto", "wide", "long", "rows"]

DATES = ("ds", "date", "datetime", "timestamp", "time", "t", "step", "year", "month", "day")
TARGETS = ("y", "value", "target", "values")
"""Usual names of such columns, in lower case."""

MAX_INSPECTED_ROWS = 1000
"""Number of rows that decide what a column holds."""


@dataclass(frozen=True)
class SeriesColumns:
    """Roles of the columns; empty ones are inferred."""

    targets: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    """Columns known ahead."""
    past: tuple[str, ...] = ()
    """Columns known until now."""
    static: tuple[str, ...] = ()
    """Columns that are constant within a series."""
    date: str = ""
    id: str = ""
    layout: TableLayout = "auto"

    @property
    def named(self) -> tuple[str, ...]:
        return (*self.targets, *self.future, *self.past, *self.static, *filter(None, (self.date, self.id)))


def resolve_columns(name: str, header: list[str], rows: list[CsvRow], columns: SeriesColumns) -> SeriesColumns:
    """Return the roles of all columns; raise if a named column is missing or is used twice."""
    _check(name, header, columns.named)
    layout = columns.layout
    if layout not in ("auto", "wide", "long", "rows"):
        raise OptionError(f"the layout of a table is auto, wide, long or rows, got {shown(layout)}")
    first = [row.cells[0] for row in rows[:MAX_INSPECTED_ROWS]]
    if layout == "rows" or (layout == "auto" and not columns.named and has_series_per_row(header, first)):
        return replace(columns, layout="rows", id=columns.id or header[0])
    rows = [CsvRow(line, [*cells, *[""] * (len(header) - len(cells))]) for line, cells in rows]
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
            raise TextError(f"{name}: column {shown(column)} occurs {there[column]} times")
        if asked[column] > 1:
            raise OptionError(f"column {shown(column)} cannot have several roles")


def _wide(name: str, header: list[str], rows: list[CsvRow], columns: SeriesColumns) -> SeriesColumns:
    date = columns.date
    if not date and header[0] not in columns.named and (len(header) > 1 or columns.targets):
        date = header[0] if _tells_time(header[0], rows) else ""
    taken = {date, *columns.future, *columns.past}
    targets = columns.targets or tuple(column for column in header if column not in taken)
    if not targets:
        raise TextError(f"{name}: no column is left to forecast besides {', '.join((*columns.future, *columns.past))}")
    return replace(columns, targets=targets, date=date, layout="wide")


def _long(name: str, header: list[str], rows: list[CsvRow], columns: SeriesColumns) -> SeriesColumns:
    date = _date_column(header, rows, columns)
    found = replace(columns, date=date, id=_id_column(header, rows, columns, date), layout="long")
    if not found.id:
        raise TextError(f"{name}: no column names the series of each row; name it with --id NAME")
    if columns.targets:
        return found
    left = _free(header, found.named)
    words = {column for column, place in left.items() if not _is_numbers(rows, place)}
    usual = [column for column in left if column.lower() in TARGETS and column not in words]
    target = next(iter(usual or [column for column in left if column not in words]), None)
    if target is None:
        raise TextError(f"{name}: no numeric column is left to forecast besides {', '.join(found.named)}")
    if columns.future or columns.past or columns.static:
        return replace(found, targets=(target,))
    del left[target]
    ids = header.index(found.id)
    static = tuple(column for column, place in left.items() if _is_static(rows, place, ids))
    past = tuple(column for column in left if column not in static)
    for column in past:
        if column in words:
            raise TextError(
                f"{name}: column {shown(column)} holds text that changes within a series; name the columns to read, "
                f"as in --target {target}"
            )
    return replace(found, targets=(target,), static=static, past=past)


def _free(header: list[str], taken: Sequence[str]) -> dict[str, int]:
    """Return the columns without a role, and their indices."""
    used = set(taken)
    return {column: place for place, column in enumerate(header) if column not in used}


def _date_column(header: list[str], rows: list[CsvRow], columns: SeriesColumns) -> str:
    if columns.date:
        return columns.date
    free = _free(header, columns.named)
    for column, place in free.items():
        if _is_dates(rows, place):
            return column
    usual = {column.lower(): column for column in reversed(free)}
    found = [usual[name] for name in DATES if name in usual]
    return next((column for column in found if _is_numbers(rows, free[column])), "")


def _tells_time(first: str, rows: list[CsvRow]) -> bool:
    """Return True if the first column of a wide table holds its dates.

    Numbers are values, unless the column is named like a date or the numbers are integers that go one way, like years.
    Text that is not a number was meant as a date, and is rejected later.
    """
    if first.lower() in DATES or _is_dates(rows, 0) or not _is_numbers(rows, 0):
        return True
    found = [parse_date(row.cells[0]) for row in rows]
    places = [date.place for date in found if date is not None and date.form == "number"]
    apart = [after > before for before, after in pairwise(places) if after != before]
    return len(places) == len(rows) == len(apart) + 1 and len(set(apart)) < 2


def _id_column(header: list[str], rows: list[CsvRow], columns: SeriesColumns, date: str) -> str:
    if columns.id or not date:
        return columns.id
    free = _free(header, [name for name in columns.named if name != date]) | {date: header.index(date)}
    return find_id_column({name: [row.cells[place] for row in rows] for name, place in free.items()}, date) or ""


MOSTLY = 0.9
"""Least share of the cells of a column that decide its kind; the others are bad cells, which are reported."""


def _is_dates(rows: list[CsvRow], place: int) -> bool:
    """Return True if the cells are written as dates, not as numbers."""
    cells = [row.cells[place] for row in rows[:MAX_INSPECTED_ROWS]]
    found = [parse_date(cell) for cell in cells if cell]
    good = sum(date is not None and date.form != "number" for date in found)
    return bool(found) and good >= MOSTLY * len(found)


def _is_numbers(rows: list[CsvRow], place: int) -> bool:
    """Return True if the cells are numbers or missing, and at least one is a number."""
    cells = [cell for row in rows if (cell := row.cells[place]).lower() not in MISSING]
    return bool(cells) and sum(parse_number(cell) is not None for cell in cells) >= MOSTLY * len(cells)


def _is_static(rows: list[CsvRow], place: int, ids: int) -> bool:
    found: dict[str, str] = {}
    return all(found.setdefault(row.cells[ids], row.cells[place]) == row.cells[place] for row in rows)


@dataclass(frozen=True)
class _SeriesRows:
    """Rows of one series of a file, before the frequency is known."""

    id: str
    name: str
    """Name of the file."""
    lines: list[int]
    values: Floats
    future: Floats
    past: Floats
    static: tuple[str, ...]
    dates: list[str]
    places: Ids
    """One position per row; empty without dates."""


@dataclass(frozen=True)
class _ParsedFile:
    name: str
    columns: SeriesColumns
    parts: list[_SeriesRows]
    form: DateFormat | None


def read_panel(names: Sequence[str], columns: SeriesColumns | None = None, reading: Reading | None = None) -> Panel:
    """Read files as one panel. A wide file is one series, named like the file."""
    reading = reading or Reading()
    files = [_parse(_table_of(name, reading), name, columns or SeriesColumns(), reading) for name in names]
    return _panel(files, reading)


def parse_panel(
    lines: Iterable[str], name: str, columns: SeriesColumns | None = None, reading: Reading | None = None
) -> Panel:
    """Parse the lines of one file as a panel."""
    reading = reading or Reading()
    return _panel([_parse(delimited(lines, name, reading), name, columns or SeriesColumns(), reading)], reading)


def _table_of(name: str, reading: Reading) -> Table:
    if is_table(name) and not is_delimited(name):
        return read_table(name, reading)
    return delimited((line for _, line in numbered_lines(name, reading)), name, reading)


# A file ---------------------------------------------------------------------------------------------------------


def _parse(table: Table, name: str, columns: SeriesColumns, reading: Reading) -> _ParsedFile:
    header, rows = _header_and_rows(table, name, reading)
    given = LocaleFormat("." if table.typed else reading.decimal, reading.date_format)
    found = localise(header, rows, given, (columns.id, *columns.static), name=name)
    reading.decimal, reading.date_format = reading.decimal or found.decimal, reading.date_format or found.dates
    columns = resolve_columns(name, header, rows, columns)
    if columns.layout == "rows":
        return _parse_rows(name, header, rows, columns, reading)
    rows = list(_whole_rows(name, header, rows, columns, reading))
    places = {column: k for k, column in enumerate(header)}
    dates: list[Date] = []
    form: DateFormat | None = None
    if columns.date:
        rows, dates, form = _dates(name, columns.date, rows, places[columns.date], reading)
    groups: dict[str, list[int]] = {}
    if columns.layout == "long":
        for k, row in enumerate(rows):
            groups.setdefault(row.cells[places[columns.id]], []).append(k)
    else:
        groups[stem_of(name)] = list(range(len(rows)))
    numbers = {column: _column(name, column, rows, places[column], reading) for column in _numeric(columns)}
    parts = [_part(name, id_, rows, at, columns, places, numbers, dates) for id_, at in groups.items()]
    return _ParsedFile(name, columns, parts, form)


def _header_and_rows(table: Table, name: str, reading: Reading) -> tuple[list[str], list[CsvRow]]:
    """Return the column names and the rows below them; an empty row in the middle becomes a row of missing values."""
    rows = [CsvRow(row.line, [cell.strip() for cell in row.cells]) for row in table.rows]
    header = list(table.header)
    if not header and not rows:
        raise TextError(f"{name}: the first line must name the columns, and there is none")
    if not header:
        first, *rows = rows
        header = first.cells
        if table.empty and table.empty[0] < first.line:
            raise TextError(f"{name}: the first line must name the columns, and it is empty")
    if not rows:
        raise TextError(f"{name} has a header and no rows")
    for line in table.empty:
        reading.reject(TextError(f"{name}:{line}: empty row in the middle of the series"))
        rows.append(CsvRow(line, [""] * len(header)))
    rows.sort(key=lambda row: row.line) if table.empty else None
    found = []
    for row in rows:
        if len(row.cells) > len(header):
            while len(row.cells) > len(header) and not row.cells[-1]:
                row.cells.pop()  # a delimiter at the end of the line
        if len(row.cells) > len(header):
            reading.reject(
                TextError(f"{name}:{row.line}: {len(row.cells)} columns, where the header has {len(header)}")
            )
            row = CsvRow(row.line, [""] * len(header))
        found.append(row)
    return header, found


def _whole_rows(
    name: str, header: list[str], rows: list[CsvRow], columns: SeriesColumns, reading: Reading
) -> Iterator[CsvRow]:
    """Yield rows with a cell for each column; a shorter row counts as missing values, so that no later value moves."""
    for row in rows:
        if len(row.cells) != len(header):
            message = Message(
                "{where}: {n} columns, where the header has {m}",
                where=f"{name}:{row.line}",
                n=len(row.cells),
                m=len(header),
            )
            reading.reject(TextError(message))
            row = CsvRow(row.line, [*row.cells, *[""] * (len(header) - len(row.cells))])
        if columns.date and not any(row.cells):
            continue  # its date is missing: the gap follows from the dates of the others
        yield row


def _numeric(columns: SeriesColumns) -> tuple[str, ...]:
    return (*columns.targets, *columns.future, *columns.past)


def _column(name: str, column: str, rows: list[CsvRow], place: int, reading: Reading) -> Floats:
    """Return the numbers of a column; a cell that is no number is reported, and counts as missing."""
    cells, lines = [row.cells[place] for row in rows], [row.line for row in rows]
    try:
        return parse_numbers(name, column, cells, lines)
    except TextError:
        if reading.on_bad_rows == "error":
            raise
    found = np.full(len(cells), np.nan)
    bad = 0
    for k, (cell, line) in enumerate(zip(cells, lines, strict=True)):
        try:
            found[k] = parse_numbers(name, column, [cell], [line])[0]
        except TextError as error:
            reading.reject(error)
            bad += 1
    if 2 * bad > len(cells):
        return parse_numbers(name, column, cells, lines)  # which raises: it is no column of numbers
    return found


def _part(
    name: str,
    id_: str,
    rows: list[CsvRow],
    at: list[int],
    columns: SeriesColumns,
    places: dict[str, int],
    table: dict[str, Floats],
    dates: list[Date],
) -> _SeriesRows:
    if dates:
        at = sorted(at, key=lambda k: dates[k].place)
    values, future, past = (
        np.stack([table[column][at] for column in group], axis=1) if group else np.zeros((len(at), 0))
        for group in (columns.targets, columns.future, columns.past)
    )
    written = [rows[k].cells[places[columns.date]] for k in at] if dates else []
    static = tuple(_same(name, column, [rows[k] for k in at], places[column]) for column in columns.static)
    lines, found = [rows[k].line for k in at], np.array([dates[k].place for k in at] if dates else [], np.int64)
    return _SeriesRows(id_, name, lines, values, future, past, static, written, found)


def _same(name: str, column: str, rows: list[CsvRow], place: int) -> str:
    first = rows[0].cells[place]
    for line, cells in rows:
        if cells[place] != first:
            raise TextError(
                f"{name}:{line}: {column} is {shown(cells[place])}, and {shown(first)} before; it is static"
            )
    return first


def _dates(
    name: str, column: str, rows: list[CsvRow], place: int, reading: Reading
) -> tuple[list[CsvRow], list[Date], DateFormat]:
    """Return the rows whose cells in a column are dates, these dates, and how they are written."""
    seen: dict[str, Date] = {}  # in a long table every date comes once a series
    found: list[Date] = []
    good: list[CsvRow] = []
    first = ""
    for row in rows:
        line, cell = row.line, row.cells[place]
        date = seen.get(cell) or parse_date(cell)
        try:
            if date is None:
                where = f"{name}:{line}: {column} is {shown(cell)}"
                raise TextError(f"{where}, not a date; write 1949, 1949-01 or 1949-01-31, or name its --date-format")
            if found and date.form != found[0].form and not {date.form, found[0].form} <= {"date", "time"}:
                raise TextError(f"{name}:{line}: {column} is {shown(cell)}, in a different format from {shown(first)}")
        except TextError as error:
            reading.reject(error)
            continue
        first = first or cell
        seen[cell] = date
        found.append(date)
        good.append(row)
    if not found:
        raise TextError(f"{name}: column {shown(column)} has no date; write 1949, 1949-01 or 1949-01-31")
    if 2 * len(found) < len(rows):
        raise TextError(reading.bad[0])
    return good, found, "time" if any(date.form == "time" for date in found) else found[0].form


def _parse_rows(
    name: str, header: list[str], rows: list[CsvRow], columns: SeriesColumns, reading: Reading
) -> _ParsedFile:
    """Parse a file with one series per row.

    Empty cells at the end of a row are not part of the series, earlier ones are gaps. The header may hold dates.
    """
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
        if not any(cells):
            continue
        id_ = cells[own] if own < len(cells) else ""
        if id_ in seen:
            reading.reject(TextError(f"{name}:{line}: series {shown(id_)} is already in line {seen[id_]}"))
            continue
        seen[id_] = line
        row = [cells[k] if k < len(cells) else "" for k in kept]
        while row and row[-1].lower() in MISSING:
            row.pop()
        values = _row_numbers(name, id_, row, line, reading)[:, None]
        empty = np.zeros((len(row), 0))
        places = np.array([date.place for date in above[: len(row)]] if dated else [], np.int64)
        static = tuple(cells[k] if k < len(cells) else "" for k in statics)
        written = [header[k] for k in kept[: len(row)]] if dated else []
        parts.append(_SeriesRows(id_, name, [line] * len(row), values, empty, empty, static, written, places))
    return _ParsedFile(name, replace(columns, targets=("value",)), parts, above[0].form if dated else None)


def _row_numbers(name: str, id_: str, row: list[str], line: int, reading: Reading) -> Floats:
    table = [CsvRow(line, [cell]) for cell in row]
    return _column(name, f"series {shown(id_)}", table, 0, reading)


# From rows to steps -----------------------------------------------------------------------------------------------


def _panel(files: Sequence[_ParsedFile], reading: Reading) -> Panel:
    first = files[0]
    for other in files[1:]:
        _check_alike(first, other)
    parts = [part for file in files for part in file.parts]
    seen: dict[str, str] = {}
    for part in parts:
        if part.id in seen:
            raise TextError(f"series {shown(part.id)} is in {seen[part.id]} and in {part.name}; give only one of them")
        seen[part.id] = part.name
    frequency = None
    if first.form is not None:
        parts = [_once(part, first.columns.date, reading) for part in parts]
        form: DateFormat = "time" if any(file.form == "time" for file in files) else first.form
        frequency = infer_frequency([part.places for part in parts], form)
    categories = _categories(first.columns.static, parts)
    numbered = {column: {cell: k for k, cell in enumerate(cells)} for column, cells in categories.items()}
    series = [_series(part, frequency, first.columns, numbered) for part in parts]
    kept = tuple(one for one in series if one is not None)
    if not kept:
        column = first.columns.targets[0]
        raise TextError(f"{first.name}: column {shown(column)} has no value")
    c = first.columns
    return Panel(first.name, kept, c.targets, c.future, c.past, c.static, categories, frequency)


def _check_alike(first: _ParsedFile, other: _ParsedFile) -> None:
    if other.columns.layout != first.columns.layout:
        a, b = f"{first.name} is {first.columns.layout}", f"{other.name} is {other.columns.layout}"
        raise TextError(
            f"{a} and {b} (a row for each time, or an id in each row): files of one panel need the same layout"
        )
    own, others = _numeric(first.columns), _numeric(other.columns)
    if own != others or first.columns.static != other.columns.static:
        raise TextError(f"{other.name} has the columns {', '.join(others)}, where {first.name} has {', '.join(own)}")
    if (first.form is None) != (other.form is None):
        dated, bare = (first, other) if first.form else (other, first)
        raise TextError(f"{dated.name} has a column of dates, and {bare.name} has none")
    if first.form != other.form and not {first.form, other.form} <= {"date", "time"}:
        raise TextError(f"{other.name} and {first.name} write dates in different formats")


def _once(part: _SeriesRows, column: str, reading: Reading) -> _SeriesRows:
    """Return a series with one row for each date; of several, the first is kept."""
    twice = np.flatnonzero(np.diff(part.places) == 0)
    if not len(twice):
        return part
    for k in twice.tolist():
        where = (
            f"{part.name}:{max(part.lines[k : k + 2])}: {part.dates[k + 1]} occurs twice in {column or 'the header'}"
        )
        error = TextError(f"{where}; a series has one row for each time, several series have a column of ids (--id)")
        if 20 * len(twice) > len(part.places):
            raise error  # several series in one
        reading.reject(error)
    keep = np.setdiff1d(np.arange(len(part.places)), twice + 1)
    return replace(
        part,
        lines=[part.lines[k] for k in keep],
        values=part.values[keep],
        future=part.future[keep],
        past=part.past[keep],
        dates=[part.dates[k] for k in keep],
        places=part.places[keep],
    )


def _categories(static: Sequence[str], parts: Sequence[_SeriesRows]) -> dict[str, tuple[str, ...]]:
    """Return the categories of static columns that are not numeric."""
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
    part: _SeriesRows, frequency: Frequency | None, columns: SeriesColumns, categories: Mapping[str, Mapping[str, int]]
) -> Series | None:
    """Return a series on the steps of a frequency, from its first value to its last; None if it has none."""
    values, future, past = part.values, part.future, part.past
    first = 0
    if frequency is not None and len(part.places):
        steps = frequency.steps(part.places)
        if too_sparse(steps):
            k = int(np.argmax(np.diff(part.places)))
            gaps = int(steps[k + 1] - steps[k]) - 1
            raise TextError(
                f"{part.name}:{part.lines[k + 1]}: dates are irregular, their greatest common step is "
                f"{frequency.name}: from {part.dates[k]} to {part.dates[k + 1]} there would be {gaps:,} gaps"
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
    """Place rows at their steps, with NaN between them."""
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
    """Return the name of a file without its endings."""
    own = Path(name).name
    for end in (*PACKED, *TABLES):
        if own.lower().endswith(end):
            own = own[: -len(end)]
    return own or name


def join_panels(panel: Panel, more: Panel) -> Panel:
    """Return a panel with the values of another panel after its own.

    Both panels are without dates, or the dates of the second follow those of the first directly.
    """
    by_id = {one.id: one for one in more.series}
    if _is_wide(panel) and _is_wide(more):
        by_id = {panel.series[0].id: more.series[0]}
    if more.targets != panel.targets or more.future != panel.future or more.past != panel.past:
        raise TextError(f"{more.name} has other columns than {panel.name}, whose series it should continue")
    found = []
    for one in panel.series:
        if one.id not in by_id:
            raise TextError(f"{more.name} does not have the series {shown(one.id)} of {panel.name}")
        rest = by_id[one.id]
        if panel.frequency and rest.first != panel.frequency.places(one.first, 1, len(one))[0]:
            raise TextError(f"{more.name}: series {shown(one.id)} does not begin where {panel.name} ends")
        values, past = np.concatenate([one.values, rest.values]), np.concatenate([one.past, rest.past])
        future = np.concatenate([one.future[: len(one)], rest.future])
        found.append(replace(one, values=values, past=past, future=future))
    return replace(panel, series=tuple(found))


def _is_wide(panel: Panel) -> bool:
    """Return True if the panel is one series named like its file."""
    return len(panel) == 1 and panel.series[0].id == stem_of(panel.name)
