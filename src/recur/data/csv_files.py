"""CSV files: rows with their line numbers, header, delimiter, quoting, and the numbers and dates of cells.

All readers of `recur.data` use these functions, so that an error always names the file and the line
("prices.csv:17: …") and a missing value is written in the same ways everywhere. Dates are integers, YYYY, YYYY-MM,
YYYYQ1, YYYYMMDD or YYYY-MM-DD, with or without a time; a slash may replace the hyphen, and leading zeros are optional.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recur.errors import TextError, shown

MISSING = frozenset(("", "na", "nan", "null", "none", "?"))
"""Spellings of a missing value, in lower case."""

LARGEST = 1e100
"""Largest absolute value that is accepted: the square of a larger number overflows, so it could not be scaled."""


class CsvRow(NamedTuple):
    """Cells of one row and the number of the line on which the row ends (a quoted cell may span lines)."""

    line: int
    cells: list[str]


def read_rows(
    lines: Iterable[str], name: str, *, delimiter: str = ",", strip: bool = True, strict: bool = True
) -> Iterator[CsvRow]:
    """Yield every row, empty ones included.

    strip    remove white space around every cell
    strict   raise TextError for broken quoting; if False, accept what Python's csv module accepts
    """
    reader = csv.reader(lines, strict=strict, delimiter=delimiter)
    try:
        for row in reader:
            yield CsvRow(reader.line_num, [cell.strip() for cell in row] if strip else row)
    except csv.Error as error:
        raise TextError(f"{name}:{reader.line_num} is not a CSV: {error}") from None


def parse_number(cell: str) -> float | None:
    """Return the number in a cell, or None if the value is missing or not a number."""
    try:
        return None if cell.lower() in MISSING else float(cell)
    except ValueError:
        return None


def parse_numbers(name: str, column: str, cells: Sequence[str], lines: Sequence[int]) -> NDArray[np.float64]:
    """Return the numbers of a column, shape (rows,), NaN where a value is missing.

    Raise TextError with the line of the first cell that is neither a finite number nor missing.
    """
    try:
        found = np.array(cells, dtype=np.float64)  # fast path: all cells are numbers
        if np.isfinite(found).all() and (np.abs(found) <= LARGEST).all():
            return found
    except ValueError:
        pass
    numbered = zip(cells, lines, strict=True)
    return np.array([_parse_cell(f"{name}:{line}: {column}", cell) for cell, line in numbered])


def _parse_cell(where: str, cell: str) -> float:
    if cell.lower() in MISSING:
        return np.nan
    value = parse_number(cell)
    if value is None:
        raise TextError(f"{where} is {shown(cell)}, which is not a number")
    if not np.isfinite(value):
        raise TextError(f"{where} is {shown(cell)}, which is not finite")
    if abs(value) > LARGEST:
        raise TextError(f"{where} is {shown(cell)}, larger than {LARGEST:g}, the largest value that can be scaled")
    return value


EPOCH, _TICK = datetime(1970, 1, 1), timedelta(microseconds=1)

DateFormat = Literal["number", "month", "date", "time"]

_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
_MONTH = re.compile(r"(\d{4})[-/](\d{1,2})")
_QUARTER = re.compile(r"(\d{4})-?[Qq]([1-4])")
_DAY = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?", re.ASCII)


class Date(NamedTuple):
    """Parsed date."""

    form: DateFormat
    """How the date is written."""
    place: int
    """The integer, or microseconds since 1970."""


def parse_date(written: str) -> Date | None:
    """Parse 1949, 1949-01, 1949Q1, 1949-01-31 or 19490131, with or without a time; None for other text.

    A UTC offset is applied, so that the repeated hour in autumn is unambiguous.
    """
    form: DateFormat = "date" if len(written) <= 10 else "time"
    try:
        if _WHOLE.fullmatch(written):
            if len(written) != 8 or not (written.isdecimal() and written.isascii()):
                return _parse_integer(written)
            when = datetime.strptime(written, "%Y%m%d")
        elif month := _MONTH.fullmatch(written):
            form, when = "month", datetime(int(month[1]), int(month[2]), 1)
        elif quarter := _QUARTER.fullmatch(written):
            form, when = "month", datetime(int(quarter[1]), 3 * int(quarter[2]) - 2, 1)
        elif day := _DAY.fullmatch(written):
            y, m, d, hour, minute, second = (int(part or 0) for part in day.groups())
            when = datetime(y, m, d, hour, minute, second)
        else:
            when = datetime.fromisoformat(written)
            when = when if when.tzinfo is None else when.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return _parse_integer(written) if _WHOLE.fullmatch(written) else None
    return Date(form, (when - EPOCH) // _TICK)


def _parse_integer(written: str) -> Date | None:
    place = float(written)
    return Date("number", int(place)) if abs(place) <= 2**53 else None  # beyond, consecutive integers are equal


def format_row(cells: Iterable[str]) -> str:
    """Return one CSV line without its line end."""
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(cells)
    return written.getvalue()
