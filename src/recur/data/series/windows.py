"""Which part of a series is learned from, measured on and tested on, and the windows of it that forecasts are of.

An origin is the number of values that are known when a forecast is made. Its targets are the `horizon` values that
follow; measured as published (ETT), only origins count whose whole horizon lies in the part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from recur.data.text.arrays import Floats, Ids
from recur.errors import OptionError

BLOCK = 1 << 21
"""Numbers of a block of forecasts, 16 MiB of them: a long series is measured a block at a time."""


class Split(NamedTuple):
    """Where the parts of a series end: it learns from rows before `train`, is measured on those before `valid` and
    tested on those before `test`."""

    train: int
    valid: int
    test: int

    @staticmethod
    def of(length: int, valid: int, test: int) -> Split:
        """With parts of these lengths at its end."""
        return Split(length - test - valid, length - test, length)

    @staticmethod
    def of_rows(rows: Sequence[int], length: int, name: str = "the series") -> Split:
        """With parts of so many rows from its beginning, as splits are published; rows beyond are left out."""
        if len(rows) != 3 or min(rows) < 0 or not rows[0]:
            raise OptionError(f"a split has the rows of three parts, as in 8640 2880 2880; got {tuple(rows)}")
        if sum(rows) > length:
            raise OptionError(
                f"{name} has {length:,} values, and its parts {' + '.join(map(str, rows))} = {sum(rows):,}"
            )
        return Split(rows[0], rows[0] + rows[1], sum(rows))


def origins(begin: int, end: int, horizon: int, stride: int = 1, whole: bool = True) -> Ids:
    """Of forecasts whose targets lie in the rows begin … end − 1; not only whole horizons: until one is left."""
    return np.arange(begin, end - (horizon if whole else 1) + 1, stride)


def windows(values: Floats, at: Ids, horizon: int) -> Floats:
    """(N, horizon, C): what follows each origin, NaN beyond the last row."""
    rows = at[:, None] + np.arange(horizon)
    found: Floats = np.take(values, np.minimum(rows, len(values) - 1), axis=0)
    found[rows >= len(values)] = np.nan
    return found


def histories(values: Floats, at: Ids, length: int) -> Floats:
    """(N, length, C): what came before each origin; before the first row, that row."""
    found: Floats = np.take(values, np.maximum(at[:, None] + np.arange(-length, 0), 0), axis=0)
    return found


def blocks(at: Ids, numbers: int) -> Iterator[Ids]:
    """The origins, so many at a time that their forecasts, each of so many numbers, stay small."""
    size = max(BLOCK // max(numbers, 1), 1)
    for begin in range(0, len(at), size):
        yield at[begin : begin + size]
