"""Numbers and dates as spreadsheets of any country write them, rewritten as 1234.5 and 2024-01-31.

    numbers   1.234,56   1 234,56   1,234.56   12,5 %   € 9,99   yes/no, true/false, ja/nein, 是/否 (1 and 0)
    dates     31.12.2024   31/12/2024   12/31/2024   31-Dec-2024   Dec 31, 2024   2024年12月31日, with or without a time

A column is rewritten only if its cells agree. Which number of 1/2/2024 is the day follows from other rows; if none
tells, TextError asks for `--date-format`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from recur.data.csv_files import MISSING, CsvRow, parse_date, parse_number
from recur.errors import OptionError, TextError, shown

ORDERS = ("dmy", "mdy", "ymd")
DECIMALS = (".", ",")

YES = frozenset(("yes", "true", "y", "t", "on", "ja", "oui", "si", "sí", "wahr", "vrai", "是", "真"))
NO = frozenset(("no", "false", "n", "f", "off", "nein", "non", "falsch", "faux", "否", "假"))

_SPACES = "  \u202f'’"
_POINT = re.compile(rf"[+-]?([1-9]\d{{0,2}}([,{_SPACES}]\d{{3}})+|\d+)?(\.\d+)?([eE][+-]?\d+)?")
_COMMA = re.compile(rf"[+-]?([1-9]\d{{0,2}}([.{_SPACES}]\d{{3}})+|\d+)?(,\d+)?([eE][+-]?\d+)?")
_AROUND = re.compile(r"^\s*[$€£¥₹]?\s*(.*?)\s*[%$€£¥₹]?\s*$", re.DOTALL)

_TIME = r"(?:[ T,]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?\s*([AaPp]\.?[Mm]\.?)?)?"
_NUMERIC = re.compile(rf"(\d{{1,4}})([./-])\s*(\d{{1,2}})\2\s*(\d{{1,4}})\.?{_TIME}", re.ASCII)
_CHINESE = re.compile(r"(\d{4})年(\d{1,2})月(?:(\d{1,2})[日号])?\s*(?:(\d{1,2})[:时](\d{2})分?)?")
_NAMED = (
    "%d-%b-%Y",
    "%d %b %Y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%b %d %Y",
    "%d-%b-%y",
    "%b %Y",
    "%B %Y",
    "%b-%Y",
)


class LocaleFormat(NamedTuple):
    """How a table writes numbers and dates."""

    decimal: str = ""
    """Decimal mark, `.` or `,`; empty if no number tells."""
    dates: str = ""
    """Order of day, month and year, or a pattern of strptime; empty if no dates need it."""


def parse_date_format(written: str) -> str:
    """Return a date format: dmy, mdy, ymd, or a pattern such as %d.%m.%Y."""
    found = written.lower().replace("/", "").replace("-", "").replace(".", "")
    named = {"ddmmyyyy": "dmy", "mmddyyyy": "mdy", "yyyymmdd": "ymd"}
    found = named.get(found, found)
    if not written or found in ORDERS:
        return found if written else ""
    if "%" in written:
        try:
            datetime.strptime(datetime(2024, 1, 31).strftime(written), written)
        except (ValueError, re.error, UnicodeError):
            pass
        else:
            return written
    raise OptionError(f"a date format is dmy, mdy, ymd or a pattern such as %d.%m.%Y, got {shown(written)}")


def localise(
    header: Sequence[str], rows: Sequence[CsvRow], given: LocaleFormat, keep: Iterable[str] = (), *, name: str = ""
) -> LocaleFormat:
    """Rewrite the cells of a table in place; return how it writes numbers and dates.

    Args:
        keep: columns that are names, not numbers or dates.
        name: the file, for messages.
    """
    columns = [k for k, column in enumerate(header) if column not in {*keep}]
    cells = {k: [row.cells[k] for row in rows if k < len(row.cells)] for k in columns}
    decimal = given.decimal or _decimal(cells.values())
    dates = given.dates
    for k in columns:
        filled = [cell for cell in cells[k] if cell.lower() not in MISSING]
        if not filled:
            continue
        if (order := _rewrite_dates(rows, k, filled, given.dates, f"{name}: {header[k]}")) is not None:
            dates = dates or order
        elif decimal == "," or not all(parse_number(cell) is not None for cell in filled):
            _rewrite_numbers(rows, k, filled, decimal)
    return LocaleFormat(decimal, dates)


# Numbers ------------------------------------------------------------------------------------------------------------


def _decimal(columns: Iterable[Sequence[str]]) -> str:
    """Return the decimal mark that cells decide: those that are a number with one mark only."""
    votes = {".": 0, ",": 0}
    for cells in columns:
        bare = [_bare(cell) for cell in cells if cell.lower() not in MISSING]
        counts = [sum(_is(mark, cell) for cell in bare) for mark in (_POINT, _COMMA)]
        point, comma = (bool(bare) and count >= max(NUMBERS * len(bare), *counts) for count in counts)
        if point != comma:
            votes["." if point else ","] += any("," in cell or "." in cell for cell in bare)
    return "," if votes[","] > votes["."] else "." if votes["."] else ""


def _bare(cell: str) -> str:
    match = _AROUND.match(cell)
    return match[1] if match else cell


def _is(pattern: re.Pattern[str], cell: str) -> bool:
    return pattern.fullmatch(cell) is not None and any(c.isdigit() for c in cell)


def holds_number(cell: str) -> bool:
    """Return True for a number or a date in any spelling that is read here."""
    bare = _bare(cell)
    return (
        _is(_POINT, bare) or _is(_COMMA, bare) or _NUMERIC.fullmatch(cell) is not None or parse_date(cell) is not None
    )


def _rewrite_numbers(rows: Sequence[CsvRow], k: int, filled: Sequence[str], decimal: str) -> None:
    lower = {cell.lower() for cell in filled}
    if lower <= YES | NO and ((lower & YES and lower & NO) or all(len(cell) > 1 for cell in lower)):
        _replace(rows, k, lambda cell: "1" if cell.lower() in YES else "0")
        return
    bare = [_bare(cell) for cell in filled]
    for mark, pattern in ((",", _COMMA), (".", _POINT)) if decimal == "," else ((".", _POINT), (",", _COMMA)):
        if sum(_is(pattern, cell) for cell in bare) >= NUMBERS * len(bare):
            _replace(rows, k, lambda cell, mark=mark, pattern=pattern: _number(cell, mark, pattern))
            return


NUMBERS = 0.9
"""Least share of the cells of a column that are numbers; others are bad cells, which readers report."""


def _number(cell: str, mark: str, pattern: re.Pattern[str]) -> str:
    bare = _bare(cell)
    if not _is(pattern, bare):
        return cell
    for space in (*_SPACES, "," if mark == "." else "."):
        bare = bare.replace(space, "")
    return bare.replace(",", ".")


def _replace(rows: Sequence[CsvRow], k: int, change: object) -> None:
    for row in rows:
        if k < len(row.cells) and row.cells[k].lower() not in MISSING:
            row.cells[k] = change(row.cells[k])  # type: ignore[operator]


# Dates --------------------------------------------------------------------------------------------------------------


def _rewrite_dates(rows: Sequence[CsvRow], k: int, filled: Sequence[str], given: str, where: str) -> str | None:
    """Rewrite a column of dates; return its format, or None if it holds no dates, or is written 2024-01-31 already."""
    if parse_date(filled[0]) is not None and all(parse_date(cell) is not None for cell in filled):
        return None
    if "%" in given:
        found = {cell: _by_pattern(cell, given) for cell in {*filled}}
    elif sum(1 for cell in filled[:SEEN] if _NUMERIC.fullmatch(cell)) >= NUMBERS * len(filled[:SEEN]):
        order = _order(filled, given, where)
        if order is None:
            return None
        found = {cell: _numeric(cell, order) for cell in {*filled}}
        given = order
    elif _CHINESE.fullmatch(filled[0]):
        found, given = {cell: _chinese(cell) for cell in {*filled}}, given
    else:
        pattern = next((p for p in _NAMED if _by_pattern(filled[0], p) is not None), None)
        if pattern is None:
            return None
        found = {cell: _by_pattern(cell, pattern) for cell in {*filled}}
    good = sum(found[cell] is not None for cell in filled)
    if good < NUMBERS * len(filled):
        return None
    timed = any(when is not None and (when.hour or when.minute or when.second) for when in found.values())
    _replace(rows, k, lambda cell: _written(cell, found[cell], timed))
    return given


SEEN = 1000
"""Cells that decide whether a column holds dates."""


def _written(cell: str, when: datetime | None, timed: bool) -> str:
    if when is None:
        return cell
    return when.strftime("%Y-%m-%d %H:%M:%S") if timed else f"{when.year:04}-{when.month:02}-{when.day:02}"


def _by_pattern(cell: str, pattern: str) -> datetime | None:
    try:
        return datetime.strptime(cell.strip(), pattern)
    except ValueError:
        return None


def _order(cells: Sequence[str], given: str, where: str) -> str | None:
    """Return the order of day, month and year that all cells allow."""
    parts = [match.groups() for cell in cells if (match := _NUMERIC.fullmatch(cell))]
    if all(len(part[0]) > 2 for part in parts):
        return "ymd"
    if any(len(part[0]) > 2 for part in parts):
        return None
    days = {int(part[0]) for part in parts}, {int(part[2]) for part in parts}
    possible = [
        order for order, place in (("dmy", 0), ("mdy", 1)) if max(days[1 - place]) <= 12 and max(days[place]) <= 31
    ]
    if given:
        return given if given in possible else None
    if len(possible) == 2 and parts[0][1] == ".":
        return "dmy"  # dates with points are never written otherwise
    if len(possible) == 2:
        both = [[_numeric(cell, order) for cell in cells[:SEEN]] for order in possible]
        if both[0] == both[1]:
            return "dmy"
        raise TextError(
            f"{where} is written {shown(cells[0])}, … {shown(cells[-1])}: the day or the month may come first; say "
            "which: --date-format dmy or --date-format mdy"
        )
    return possible[0] if possible else None


def _numeric(cell: str, order: str) -> datetime | None:
    match = _NUMERIC.fullmatch(cell)
    if match is None:
        return None
    first, _, second, third, hour, minute, seconds, half = match.groups()
    day, month, year = {"dmy": (first, second, third), "mdy": (second, first, third), "ymd": (third, second, first)}[
        order
    ]
    hours = int(hour or 0)
    if half:
        hours = hours % 12 + (12 if half[0] in "pP" else 0)
    return _datetime(_year(year), int(month), int(day), hours, int(minute or 0), int(seconds or 0))


def _year(written: str) -> int:
    """Return a year; 70 … 99 are of the twentieth century, 00 … 69 of the next."""
    return int(written) if len(written) > 2 else int(written) + (1900 if int(written) >= 70 else 2000)


def _chinese(cell: str) -> datetime | None:
    match = _CHINESE.fullmatch(cell)
    if match is None:
        return None
    year, month, day, hour, minute = (int(part) if part else None for part in match.groups())
    return _datetime(year or 0, month or 0, day or 1, hour or 0, minute or 0, 0)


def _datetime(*parts: int) -> datetime | None:
    try:
        return datetime(*parts)  # type: ignore[arg-type]
    except ValueError:
        return None
