"""Series and panels of series; gap filling, splits, forecast origins and windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from recur.data.series.dates import Frequency, calendar_features, calendar_names
from recur.data.text.stream import Floats, Ids, Mask
from recur.errors import OptionError


def fill(values: Floats, season: int = 1) -> Floats:
    """Fill gaps of (T, C) with the last value of the same phase of the season, else with the last value.

    Only earlier values are used. Before the first value its own value is used, and 0 in a column without values.
    """
    if not np.isnan(values).any():
        return values
    T, C = values.shape
    whole = -(-T // season) * season
    padded = np.full((whole, C), np.nan)
    padded[:T] = values
    seasonal = _carried(padded.reshape(-1, season * C)).reshape(whole, C)[:T]
    carried = _carried(np.where(np.isnan(values), seasonal, values))
    for column in carried.T:
        seen = column[~np.isnan(column)]
        column[np.isnan(column)] = seen[0] if len(seen) else 0.0
    return carried


def _carried(values: Floats) -> Floats:
    """Carry the last value forward in each column."""
    rows = np.where(np.isnan(values), 0, np.arange(len(values))[:, None])
    return np.take_along_axis(values, np.maximum.accumulate(rows, axis=0), axis=0)


@dataclass(frozen=True)
class Series:
    """One series of a panel: T steps of C targets."""

    id: str
    values: Floats
    """(T, C): NaN where nothing was observed."""
    future: Floats
    """(T + ahead, F): covariates known ahead."""
    past: Floats
    """(T, P): covariates known until now."""
    static: Floats
    """(n,): numbers, and categories as indices into the panel's list."""
    start: int = 0
    """Step number of the first row from a fixed origin: series agree on the phase of a season."""
    first: int = 0
    """Position of the first row, see dates.py."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def observed(self) -> Mask:
        """(T, C): whether a value was observed."""
        return ~np.isnan(self.values)

    @property
    def ahead(self) -> int:
        """Number of rows after the last value for which covariates are known."""
        return len(self.future) - len(self.values)

    def until(self, n: int) -> Series:
        """Return the first n values; covariates known ahead are kept."""
        return replace(self, values=self.values[:n], past=self.past[:n])


@dataclass(frozen=True)
class Panel:
    name: str
    series: tuple[Series, ...]
    targets: tuple[str, ...]
    """Names of columns, here and below."""
    future: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Categories of static columns that are not numeric."""
    frequency: Frequency | None = None
    """None without dates."""

    def __len__(self) -> int:
        return len(self.series)

    @property
    def lengths(self) -> Ids:
        return np.array([len(one) for one in self.series])

    def without(self, targets: int) -> Panel:
        """Return the panel without the last values of each series."""
        return replace(self, series=tuple(one.until(max(len(one) - targets, 0)) for one in self.series))

    # Dates ----------------------------------------------------------------------------------------------

    def dates(self, series: Series, begin: int = 0, length: int | None = None) -> tuple[str, ...]:
        """Return dates as the file writes them, also after its last row; empty without dates."""
        if self.frequency is None:
            return ()
        length = len(series) - begin if length is None else length
        return tuple(map(self.frequency.written, self.frequency.places(series.first, length, begin)))

    def calendar(self, series: Series, length: int, form: str = "scaled") -> Floats:
        """Return calendar features (length, K) from the first row on."""
        if self.frequency is None or not self.frequency.dated:
            return np.zeros((length, 0))
        return calendar_features(self.frequency.places(series.first, length), self.frequency, form)

    def calendar_names(self, form: str = "scaled") -> tuple[str, ...]:
        return () if self.frequency is None else calendar_names(self.frequency, form)


BLOCK = 1 << 21
"""Numbers per block of forecasts (16 MiB): long series are evaluated in blocks."""


class Split(NamedTuple):
    """Ends of the parts of a series: training before `train`, validation before `valid`, test before `test`."""

    train: int
    valid: int
    test: int

    @staticmethod
    def of(length: int, valid: int, test: int) -> Split:
        """Return a split with validation and test parts of these lengths at the end."""
        return Split(length - test - valid, length - test, length)

    @staticmethod
    def of_rows(rows: Sequence[int], length: int, name: str = "the series") -> Split:
        """Return a split with parts of these numbers of rows from the start, as published splits are; further rows are
        left out.
        """
        if len(rows) != 3 or min(rows) < 0 or not rows[0]:
            raise OptionError(f"a split has the rows of three parts, as in 8640 2880 2880; got {tuple(rows)}")
        if sum(rows) > length:
            raise OptionError(
                f"{name} has {length:,} values, and its parts {' + '.join(map(str, rows))} = {sum(rows):,}"
            )
        return Split(rows[0], rows[0] + rows[1], sum(rows))


def origins(begin: int, end: int, horizon: int, stride: int = 1, whole: bool = True) -> Ids:
    """Return the origins of forecasts of the rows begin … end − 1; with whole=False also incomplete horizons."""
    return np.arange(begin, end - (horizon if whole else 1) + 1, stride)


def windows(values: Floats, at: Ids, horizon: int) -> Floats:
    """Return the values after each origin, shape (N, horizon, C), NaN after the last row."""
    rows = at[:, None] + np.arange(horizon)
    found: Floats = np.take(values, np.minimum(rows, len(values) - 1), axis=0)
    found[rows >= len(values)] = np.nan
    return found


def histories(values: Floats, at: Ids, length: int) -> Floats:
    """Return the values before each origin, shape (N, length, C); the first row is repeated before it."""
    found: Floats = np.take(values, np.maximum(at[:, None] + np.arange(-length, 0), 0), axis=0)
    return found


def blocks(at: Ids, numbers: int) -> Iterator[Ids]:
    """Yield origins in blocks whose forecasts of `numbers` numbers each fit into BLOCK."""
    size = max(BLOCK // max(numbers, 1), 1)
    for begin in range(0, len(at), size):
        yield at[begin : begin + size]
