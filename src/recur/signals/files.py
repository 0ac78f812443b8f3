"""One sequence of numbers from a file: (T, D), a row a step.

.npy    (T, D), or (T,) for one feature a step
.csv    a line a step, numbers between commas. A first line without a number names the columns. A column named `tag` or
        `label`, or without names a last one that is not of numbers, has a label for each step.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recur.errors import TextError, shown
from recur.files import read_bounded
from recur.images.arrays import read_header, reading

Values = np.ndarray[tuple[int, int], np.dtype[np.float32]]
"""(T, D)"""

SUFFIXES = (".csv", ".npy")
LARGEST, MOST_FEATURES, BEYOND = 1 << 28, 1 << 16, 1e30
"""Bytes of a file, features of a step and the size of a number at most."""

TAGS = ("tag", "label")
"""The names of a column with a label for each step."""


class Steps(NamedTuple):
    values: Values
    tags: tuple[str, ...] | None
    """A label for each step, where the file has them."""


def read_signal(path: Path | str) -> Steps:
    path = Path(path)
    with reading(path, "a sequence of numbers"):
        content = read_bounded(path, LARGEST)
        if path.suffix.lower() == ".npy":
            stream = io.BytesIO(content)
            read_header(stream, len(content))
            stream.seek(0)
            return Steps(as_values(np.lib.format.read_array(stream, allow_pickle=False), str(path)), None)
        if path.suffix.lower() == ".csv":
            return parse_steps(content.decode("utf-8-sig"), str(path))
    raise TextError(f"{path} is no sequence of numbers: a file of one ends in {' or '.join(SUFFIXES)}")


def as_values(array: np.ndarray[Any, Any], where: str) -> Values:
    """(T,) or (T, D) as (T, D) in float32."""
    if array.dtype.kind not in "uifb":
        raise TextError(f"{where} holds {array.dtype}, and a sequence is made of numbers")
    found = array[:, None] if array.ndim == 1 else array
    if found.ndim != 2 or 0 in found.shape or found.shape[1] > MOST_FEATURES:
        raise TextError(f"{where} is no sequence of numbers: (steps, features) or (steps,), got {array.shape}")
    if found.dtype.kind == "f" and not (np.abs(found) < BEYOND).all():
        raise TextError(f"{where} has values that are not finite, or beyond {BEYOND:g}")
    return np.ascontiguousarray(found, np.float32)


def parse_steps(text: str, name: str) -> Steps:
    rows, lines = _rows(text, name)
    header = [cell.lower() for cell in rows[0]] if not any(map(_is_number, rows[0])) else None
    if header is not None:
        rows, lines = rows[1:], lines[1:]
        if not rows:
            raise TextError(f"{name} has a header and no steps")
    width = len(rows[0]) if header is None else len(header)
    tag = next((header.index(word) for word in TAGS if word in header), None) if header is not None else None
    if header is None and not any(_is_number(row[-1]) for row in rows):
        tag = width - 1
    columns = [k for k in range(width) if k != tag]
    if not columns or len(columns) > MOST_FEATURES:
        raise TextError(f"{name} has {len(columns)} columns of numbers; a step has 1 … {MOST_FEATURES:,}")
    values = np.empty((len(rows), len(columns)))
    for t, (row, line) in enumerate(zip(rows, lines, strict=True)):
        if len(row) != width:
            raise TextError(f"{name}:{line}: {len(row)} columns, where others have {width}")
        try:
            values[t] = [float(row[k]) for k in columns]
        except ValueError:
            bad = next(row[k] for k in columns if not _is_number(row[k]))
            raise TextError(f"{name}:{line}: {shown(bad)} is not a number") from None
    tags = None if tag is None else tuple(row[tag] for row in rows)
    if tags is not None and not all(tags):
        raise TextError(f"{name}:{lines[tags.index('')]}: the step has no label, and others have one")
    return Steps(as_values(values, name), tags)


def _rows(text: str, name: str) -> tuple[list[list[str]], list[int]]:
    """The cells of every line that has some, and the numbers of those lines."""
    reader = csv.reader(io.StringIO(text), strict=True)
    rows, lines = [], []
    try:
        for row in reader:
            if any(cells := [cell.strip() for cell in row]):
                rows.append(cells)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise TextError(f"{name}:{reader.line_num} is not a CSV: {error}") from None
    if not rows:
        raise TextError(f"{name} is empty: a sequence has a step at least")
    return rows, lines


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
