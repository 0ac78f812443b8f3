"""Series and panels of series: gap filling, splits, forecast origins, windows and season lengths.

With dates, the usual seasons of the frequency (24 and 168 for hours) are tested, and kept if the values repeat. Without
dates, the season is the lag at which the autocorrelation of the differences has a clear peak. In a panel, more than
half of the series must agree.
"""

from __future__ import annotations

from collections import Counter
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


MIN_SEASONS = 3
"""Least number of full seasons in a series."""

MAX_SEASON = 2000
"""Longest season searched without dates; also sets how many values are searched."""

MIN_AUTOCORRELATION = 0.25
"""Least autocorrelation of differences at a season, if no dates suggest it."""

MAX_SERIES = 200
"""Largest number of series of a panel that are inspected."""


def panel_seasons(panel: Panel, lengths: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the seasons that more than half of the columns of a panel have, in the first `lengths` values."""
    step = -(-len(panel) // MAX_SERIES)
    chosen = range(0, len(panel), step)
    votes: Counter[int] = Counter()
    asked = 0
    for k in chosen:
        values = panel.series[k].values[: None if lengths is None else lengths[k]]
        for column in fill(values).T:
            votes.update(find_seasons(column[:, None], panel.frequency))
            asked += 1
    return tuple(sorted(season for season, count in votes.items() if 2 * count > asked))


def find_seasons(values: Floats, frequency: Frequency | None = None) -> tuple[int, ...]:
    """Return the season lengths shared by all series of shape (T, C), shortest first; empty if none is found."""
    if frequency is None or not frequency.dated:
        found = peak_of_autocorrelation(values)
        return (found,) if found else ()
    changes = _changes(values)
    seasons: list[int] = []
    for season in frequency.seasons:
        if season * MIN_SEASONS <= len(values) and repeats_after(season, changes):
            seasons.append(season)
            changes = changes - _by_phase(changes, season)  # a longer season is one if it adds to the shorter
    return tuple(seasons)


def repeats_after(season: int, changes: Floats) -> bool:
    """Return True if differences (T, C) correlate at the season more than by chance and more than at its neighbours."""
    here, *beside = (_correlation(changes, lag) for lag in (season, season - 1, season + 1))
    return bool(here > max(2 / len(changes) ** 0.5, *beside))


def peak_of_autocorrelation(values: Floats) -> int:
    """Return the lag of the first clear peak of the autocorrelation; 0 if there is none.

    A peak must exceed the limits of chance (Bartlett, 99 %), repeat at twice its lag, and have a trough before it,
    which a slow drift does not have.
    """
    changes = _changes(values[-MAX_SEASON * 2 * MIN_SEASONS :])
    longest = min(len(values) // MIN_SEASONS, MAX_SEASON)
    if longest < 3:
        return 0
    r = _autocorrelations(changes, min(2 * longest + 1, len(changes) - 1))
    limit = 2.58 / len(changes) ** 0.5 * np.sqrt(1 + 2 * np.cumsum(np.r_[0.0, r[:-1] ** 2]))
    lags = range(3, longest + 1)  # what turns back at every step repeats after two, and has no season
    peaks = [
        lag
        for lag in lags
        if r[lag - 1] >= max(r[lag - 2], r[lag]) and r[lag - 1] > max(MIN_AUTOCORRELATION, limit[lag - 1])
    ]
    peaks = [lag for lag in peaks if r[: lag - 1].min() < 0 and _again(r, lag)]
    highest = max((r[lag - 1] for lag in peaks), default=0.0)
    # Two seasons repeat as well as one: the shortest of those about as high.
    return next((lag for lag in peaks if r[lag - 1] >= 0.8 * highest), 0)


def _again(r: Floats, lag: int) -> bool:
    """Return True if the peak repeats near twice its lag."""
    near = max(1, round(0.1 * lag))
    after = r[2 * lag - 1 - near : 2 * lag + near]
    return bool(len(after) and after.max() > 0.3 * r[lag - 1])


def _changes(values: Floats) -> Floats:
    changes = np.diff(values, axis=0)
    return changes - changes.mean(0) if len(changes) else changes


def _by_phase(changes: Floats, season: int) -> Floats:
    """Return the mean of each phase of a season, for every step."""
    phase = np.arange(len(changes)) % season
    count = np.bincount(phase, minlength=season)
    means = [np.bincount(phase, column, season) / count for column in changes.T]
    return np.stack([mean[phase] for mean in means], axis=1)


def _correlation(changes: Floats, lag: int) -> float:
    power = np.maximum((changes**2).sum(0), 1e-300)
    return float(((changes[lag:] * changes[: len(changes) - lag]).sum(0) / power).mean())


def _autocorrelations(changes: Floats, longest: int) -> Floats:
    """Return the autocorrelations at lags 1 … longest, mean over series, by the Fourier transform."""
    n = len(changes)
    spectrum = np.abs(np.fft.rfft(changes, 2 * n, axis=0)) ** 2
    products = np.fft.irfft(spectrum, axis=0)[: longest + 1]
    found: Floats = (products[1:] / np.maximum(products[0], 1e-300)).mean(1)
    return found
