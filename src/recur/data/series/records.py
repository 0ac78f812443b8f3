"""The rows of a CSV with their lines, and the numbers in their cells."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from recur.data.text.arrays import Floats
from recur.data.text.fields import LARGEST, MISSING, no_commas, number
from recur.errors import TextError, shown


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
                raise TextError(f"{name}:{reader.line_num}: {len(cells)} columns, where the header has {len(header)}")
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
