"""Season lengths of series.

With dates, the usual seasons of the frequency (24 and 168 for hours) are tested, and kept if the values repeat. Without
dates, the season is the lag at which the autocorrelation of the differences has a clear peak. In a panel, more than
half of the series must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from recur.data.series.dates import Frequency
from recur.data.series.panel import Panel, fill
from recur.data.text.stream import Floats

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
