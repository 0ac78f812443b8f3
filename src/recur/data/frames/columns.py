"""Columns by name, out of whatever holds them, and the CSV that says the same."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

import numpy as np

from recur.errors import TextError, shown

Columns = dict[str, list[Any]]


def is_frame(given: object) -> bool:
    """Whether it has named columns and rows, as the frames of pandas and polars have."""
    shape = getattr(given, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 2 and hasattr(given, "columns") and hasattr(given, "__getitem__")


def is_series(given: object) -> bool:
    """Whether it is one column of a frame."""
    shape = getattr(given, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 1 and hasattr(given, "to_list")


def values_of(column: object) -> list[Any]:
    """The values of a column, or of a list, as Python has them."""
    if is_series(column):
        return list(column.to_list())  # type: ignore[attr-defined]
    if isinstance(column, np.ndarray):
        return list(column.tolist()) if column.ndim == 1 else list(column)
    if isinstance(column, str | bytes | Mapping) or not isinstance(column, Sequence):
        raise TextError(f"a column is a list or a series, got {type(column).__name__} {shown(column)}")
    return list(column)


def columns_of(given: object) -> Columns:
    """The columns of a frame, a series, a mapping of lists or an array; an index of dates is a column of its own."""
    if isinstance(given, Mapping):
        found = {str(name): values_of(column) for name, column in given.items()}
    elif is_frame(given):
        names = list(given.columns)  # type: ignore[attr-defined]
        if len({str(name) for name in names}) < len(names):
            raise TextError(f"two columns of the frame have one name: {', '.join(map(str, names))}")
        found = _dates(given) | {str(name): values_of(given[name]) for name in names}  # type: ignore[index]
    elif is_series(given):
        name = getattr(given, "name", None)
        found = _dates(given) | {"value" if name in (None, "") else str(name): values_of(given)}
    elif isinstance(given, np.ndarray) and given.ndim == 2:
        found = {f"x{k}": column.tolist() for k, column in enumerate(given.T, start=1)}
    elif isinstance(given, np.ndarray | Sequence) and not isinstance(given, str | bytes):
        found = {"value": values_of(given)}
    else:
        raise TextError(f"a table is a frame, an array or columns by name, got {type(given).__name__} {shown(given)}")
    if not found or len({len(column) for column in found.values()}) > 1:
        sizes = ", ".join(f"{name}: {len(column)}" for name, column in found.items())
        raise TextError(f"the columns of a table are of one length, got {sizes or 'none'}")
    return found


def _dates(given: object) -> Columns:
    """pandas keeps dates in an index; one that only counts rows is no column."""
    index = getattr(given, "index", None)
    if index is None or not hasattr(index, "to_list"):
        return {}
    values = list(index.to_list())
    if not values or not (isinstance(values[0], date) or hasattr(values[0], "start_time")):  # a Period has one
        return {}
    name = str(getattr(index, "name", None) or "date")
    return {name: values}


def csv_lines(columns: Columns) -> Iterator[str]:
    """A header and a row a line, without their ends."""
    whole_days = {name: all(_is_midnight(v) for v in values) for name, values in columns.items()}
    yield _line(columns)
    for row in zip(*columns.values(), strict=True):
        cells = [cell(v, whole_days[name]) for name, v in zip(columns, row, strict=True)]
        if not any(cells):
            cells[0] = "NA"  # a line without anything would be none
        yield _line(cells)


def _line(fields: Any) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow([one_line(str(field)) for field in fields])
    return written.getvalue()


def cell(value: object, whole_days: bool = False) -> str:
    """A value as a file has it; what is missing is empty."""
    if is_missing(value):
        return ""
    if isinstance(value, datetime):
        return value.date().isoformat() if whole_days else value.isoformat()
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value) if isinstance(value, float) else str(value)


def is_missing(value: object) -> bool:
    """None, NaN, and what pandas has for them."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor not; arrays are both
        return type(value).__name__ == "NAType"


def _is_midnight(value: object) -> bool:
    return is_missing(value) or not isinstance(value, datetime) or value.time() == time()


def one_line(text: str) -> str:
    """A text without the tabs and line ends that tables of lines are cut by: a space stands for them."""
    return " ".join(text.split()) if any(mark in text for mark in "\t\n\r") else text
