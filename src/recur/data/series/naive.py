"""Plain forecasts. Each takes values (T, C) without gaps and origins (N,), and gives the next k of every origin at
once, (N, k, C), from what comes before the origin alone.

naive            ŷ_{o+j} = y_o
seasonal naive   ŷ_{o+j} = the value one season before, or two where that lies ahead
naive 2          the naive forecast of seasonally adjusted values, with the season put back: M4's yardstick
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recur.data.text.arrays import Floats, Ids
from recur.errors import OptionError

Plain = Callable[[Floats, Ids, int], Floats]
"""values (T, C), origins (N,), k → (N, k, C)"""


def naive_forecasts(values: Floats, at: Ids, k: int) -> Floats:
    return np.repeat(values[at - 1][:, None], k, axis=1)


@dataclass(frozen=True)
class SeasonalNaive:
    season: int

    def __call__(self, values: Floats, at: Ids, k: int) -> Floats:
        if len(at) and at.min() < self.season:
            raise OptionError(
                f"a season of {self.season} needs at least {self.season} values before the first forecast"
            )
        return np.take(values, at[:, None] - self.season + np.arange(k) % self.season, axis=0)


@dataclass(frozen=True)
class Naive2:
    """Seasonal factors of each series, found where it was fitted; all ones where there is no season."""

    factors: Floats
    """(season, C): by the row's number modulo the season."""

    @staticmethod
    def fit(train: Floats, season: int) -> Naive2:
        if season < 2:
            return Naive2(np.ones((1, train.shape[1])))
        columns = [seasonal_factors(y, season) if is_seasonal(y, season) else np.ones(season) for y in train.T]
        return Naive2(np.stack(columns, axis=1))

    def __call__(self, values: Floats, at: Ids, k: int) -> Floats:
        season = len(self.factors)
        level = values[at - 1] / self.factors[(at - 1) % season]
        found: Floats = level[:, None] * self.factors[(at[:, None] + np.arange(k)) % season]
        return found


def is_seasonal(series: Floats, season: int) -> bool:
    """M4's test: the autocorrelation at the season lies outside the 90 % limits that those before it leave (Bartlett);
    at least three seasons, and no value at which a factor would have no sense."""
    if len(series) < 3 * season or series.min() <= 0:
        return False
    apart = series - series.mean()
    power = float(apart @ apart)
    if power <= 0:
        return False
    r = np.array([apart[lag:] @ apart[:-lag] for lag in range(1, season + 1)]) / power
    limit = 1.645 / np.sqrt(len(series)) * np.sqrt(1 + 2 * (r[:-1] ** 2).sum())
    return bool(abs(r[-1]) > limit)


def seasonal_factors(series: Floats, season: int) -> Floats:
    """(season,): the classical multiplicative decomposition: values by their centred moving average, means by phase,
    which themselves have mean 1."""
    weights = np.ones(season) if season % 2 else np.r_[0.5, np.ones(season - 1), 0.5]
    trend = np.convolve(series, weights / season, "valid")
    half = len(weights) // 2
    ratio = series[half : half + len(trend)] / trend
    phase = (half + np.arange(len(trend))) % season
    factors = np.bincount(phase, ratio, season) / np.bincount(phase, minlength=season)
    found: Floats = factors / factors.mean()
    return found
