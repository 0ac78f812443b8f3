"""Gaps, filled for what cannot do without a value: with what was known before, never with what came after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from recur.data.series.dates import Frequency, calendar_features, calendar_names
from recur.data.text.stream import Floats, Ids, Mask
from recur.errors import OptionError


def fill(values: Floats, season: int = 1) -> Floats:
    """(T, C): NaN becomes the last value of the same phase of the season, else the last value; before the first value,
    that one, and 0 in a column without any."""
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
    """The last value that is one, down each column."""
    rows = np.where(np.isnan(values), 0, np.arange(len(values))[:, None])
    return np.take_along_axis(values, np.maximum.accumulate(rows, axis=0), axis=0)


@dataclass(frozen=True)
class Series:
    """One of a panel: T steps of C targets."""

    id: str
    values: Floats
    """(T, C): NaN where nothing was observed."""
    future: Floats
    """(T + ahead, F): covariates that are known ahead."""
    past: Floats
    """(T, P): covariates that are known until now."""
    static: Floats
    """(n,): numbers, and categories as their places in the panel's list of them."""
    start: int = 0
    """How many steps the first row lies behind a fixed one: series agree on the phase of a season."""
    first: int = 0
    """The date of the first row, as a place of dates.py."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def observed(self) -> Mask:
        """(T, C)"""
        return ~np.isnan(self.values)

    @property
    def ahead(self) -> int:
        """Rows behind the last value, for which covariates are known."""
        return len(self.future) - len(self.values)

    def until(self, n: int) -> Series:
        """The first n values; what is known ahead stays known."""
        return replace(self, values=self.values[:n], past=self.past[:n])


@dataclass(frozen=True)
class Panel:
    name: str
    series: tuple[Series, ...]
    targets: tuple[str, ...]
    """The names of columns, here and below."""
    future: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of static columns that hold words."""
    frequency: Frequency | None = None
    """None without dates."""

    def __len__(self) -> int:
        return len(self.series)

    @property
    def lengths(self) -> Ids:
        return np.array([len(one) for one in self.series])

    def univariate(self) -> Panel:
        """Each target as a series of its own."""
        if len(self.targets) == 1:
            return self
        alone = len(self.series) == 1
        found = [
            replace(one, id=name if alone else f"{one.id}/{name}", values=one.values[:, k : k + 1])
            for one in self.series
            for k, name in enumerate(self.targets)
        ]
        return replace(self, series=tuple(found), targets=("value",))

    def without(self, targets: int) -> Panel:
        """All series without so many values at their end, for what may not see them."""
        return replace(self, series=tuple(one.until(max(len(one) - targets, 0)) for one in self.series))

    # Dates ----------------------------------------------------------------------------------------------

    def dates(self, series: Series, begin: int = 0, length: int | None = None) -> tuple[str, ...]:
        """As the file would write them; beyond its last row too. Nothing without dates."""
        if self.frequency is None:
            return ()
        length = len(series) - begin if length is None else length
        return tuple(map(self.frequency.written, self.frequency.places(series.first, length, begin)))

    def calendar(self, series: Series, length: int, form: str = "scaled") -> Floats:
        """(length, K): hour, day of the week and so on from the first row on, as far as one likes."""
        if self.frequency is None or not self.frequency.dated:
            return np.zeros((length, 0))
        return calendar_features(self.frequency.places(series.first, length), self.frequency, form)

    def calendar_names(self, form: str = "scaled") -> tuple[str, ...]:
        return () if self.frequency is None else calendar_names(self.frequency, form)


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
