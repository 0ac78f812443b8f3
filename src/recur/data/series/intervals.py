"""Conformal prediction intervals: quantiles shifted by their errors on held-out forecasts; and anomaly scores.

For each quantile q and each step ahead, the scores of n held-out forecasts are e = (y − ŷ_q) / s with a spread s of the
series. The quantile is shifted by the ⌈(n + 1) q⌉-th smallest score (⌊(n + 1) q⌋-th below the median). Then a new value
that is exchangeable with the held-out values is below it with probability at least q (at most q, below the median):
Vovk 2005; for quantiles of a model, Romano, Patterson and Candès 2019. The median is not shifted.

With few forecasts the outer quantiles have no such score. Then steps and series pool their scores, each divided by the
typical error of its step and series. Forecasts k steps ahead from neighbouring origins overlap, and their errors are
dependent: beyond ten steps, n of them count as 10 n / k. (Ten was found on 59 yearly to weekly series with a linear
autoregression: intervals of 80 % then cover 79 % of the following values on average.) Forecasts whose last steps are
still in the future count only with their known steps.

Successive values are not exchangeable if a series changes. `rolling_intervals` refits with all values known at each
origin, and `AdaptiveInterval` moves the level itself until the coverage holds (Gibbs and Candès 2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from recur.data.text.stream import Floats, Ids
from recur.errors import OptionError

MIN_SCORES = 50
"""Least number of scores per step and series; with fewer, scores are pooled."""

INDEPENDENT_STEPS = 10
"""Horizon up to which every forecast counts fully."""

MAX_SORTED_SCORES = 1 << 26
"""Approximate limit on the number of scores that `rolling_intervals` sorts."""


@dataclass(frozen=True)
class PredictionIntervals:
    """Fitted offsets that turn quantiles into calibrated prediction intervals."""

    quantiles: tuple[float, ...]
    offsets: Floats
    """(k, C, Q): offsets of the quantiles in units of the spread. C is 1 if series share them."""

    @staticmethod
    def fit(
        target: Floats, forecast: Floats, quantiles: Sequence[float], spread: Floats | float = 1.0
    ) -> PredictionIntervals:
        """Fit offsets to held-out values and their forecasts.

        target     (N, k, C), NaN where nothing was observed
        forecast   (N, k, C, Q), by a model that was not trained on the values
        spread     one number, (C,), or one per forecast
        """
        N, k, C, Q = forecast.shape
        if target.shape != (N, k, C) or len(quantiles) != Q:
            raise OptionError(
                f"prediction intervals need values {(N, k, C)} and {Q} quantiles, got "
                f"{target.shape} and {len(quantiles)}"
            )
        if not (~np.isnan(target)).any():
            raise OptionError("prediction intervals need held-out values, and there are none")
        wide = np.broadcast_to(spread, target.shape)
        scores = (target[..., None] - forecast) / wide[..., None]
        typical = _typical(scores[..., _median(quantiles)])
        levels = [_offsets(scores[..., j], typical, q) for j, q in enumerate(quantiles)]
        return PredictionIntervals(tuple(quantiles), np.stack(levels, axis=-1))

    def apply(self, forecast: Floats, spread: Floats | float = 1.0) -> Floats:
        """Return forecasts (…, k, C, Q) with the offsets added, sorted around the median."""
        wide = np.broadcast_to(spread, forecast.shape[:-1])
        k = forecast.shape[-3]
        moved = forecast + self.offsets[:k] * wide[..., None]
        return _in_order(moved, _median(self.quantiles))


def rolling_intervals(
    target: Floats,
    forecast: Floats,
    quantiles: Sequence[float],
    first: int,
    spread: Floats | float = 1.0,
    stride: int = 1,
    when: Ids | None = None,
) -> Floats:
    """Return forecasts from `first` on, shape (N − first, k, C, Q), each calibrated on the errors known at its origin.

    stride   number of steps between origins
    when     (N,): steps of the origins, in any order, in place of `stride`
    The offsets are refitted at every origin, or at evenly spaced ones if that would take too long.
    """
    N, k, *_ = forecast.shape
    wide = np.broadcast_to(spread, target.shape)
    when = np.arange(N) * stride if when is None else when
    moments = np.unique(when[first:])
    every = max(1, len(moments) * forecast.size // MAX_SORTED_SCORES)
    ahead = when[:, None] + np.arange(k)  # a target is known after this step
    made = np.empty_like(forecast[first:])
    for begin in range(0, len(moments), every):
        now = moments[begin]
        before = when < now
        known = np.where((ahead[before] < now)[..., None], target[before], np.nan)
        bands = PredictionIntervals.fit(known, forecast[before], quantiles, wide[before])
        mine = np.flatnonzero((when[first:] >= now) & (when[first:] <= moments[begin : begin + every][-1]))
        made[mine] = bands.apply(forecast[first + mine], wide[first + mine])
    return made


def _median(quantiles: Sequence[float]) -> int:
    return int(np.argmin(np.abs(np.array(quantiles) - 0.5)))


def _typical(errors: Floats) -> Floats:
    """Return the mean error |y − ŷ| of each step and series, shape (k, C), made non-decreasing over the steps.

    A step or series without values takes the mean of the others.
    """
    there = ~np.isnan(errors)
    size = np.where(there, np.abs(errors), 0.0)
    of_series = size.sum((0, 1)) / np.maximum(there.sum((0, 1)), 1)
    of_series = np.where(of_series > 0, of_series, of_series.max(initial=0) or 1.0)
    relative = size / of_series
    of_step = relative.sum((0, 2)) / np.maximum(there.sum((0, 2)), 1)
    smooth = _rising(of_step, there.sum((0, 2)).astype(float))
    found: Floats = np.maximum(np.outer(smooth, of_series), 1e-300)
    return found


def _rising(values: Floats, weights: Floats) -> Floats:
    """Return the nearest non-decreasing sequence (pool adjacent violators): later steps are not easier."""
    parts: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        parts.append((float(value), float(weight), 1))
        while len(parts) > 1 and (parts[-2][0] >= parts[-1][0] or not parts[-1][1]):
            (a, n, i), (b, m, j) = parts[-2:]
            parts[-2:] = [((a * n + b * m) / max(n + m, 1e-300), n + m, i + j)]
    return np.concatenate([np.full(count, value) for value, _, count in parts])


def _offsets(scores: Floats, typical: Floats, quantile: float) -> Floats:
    """Return offsets (k, C) of scores (N, k, C)."""
    if quantile == 0.5:
        return np.zeros_like(typical)
    share = min(INDEPENDENT_STEPS / scores.shape[1], 1.0)
    count = (~np.isnan(scores)).sum(0)
    if count.min() >= MIN_SCORES:
        return conformal_quantile(scores, quantile, count * share)
    relative, of_step = scores / typical, count.sum(1)
    if of_step.min() >= MIN_SCORES:  # series lend to each other
        by_step = relative.transpose(0, 2, 1).reshape(-1, len(of_step))
        found: Floats = conformal_quantile(by_step, quantile, of_step * share)[:, None] * typical
        return found
    whole = of_step.min() or of_step.max()
    return conformal_quantile(relative.ravel(), quantile, whole * share) * typical


def conformal_quantile(scores: Floats, quantile: float, independent: Floats | Ids | float | None = None) -> Floats:
    """Return the conformal quantile (…,) of scores (n, …), ignoring NaN.

    A new score is below it with probability at least `quantile` above the median, at most below the median.
    `independent` is the effective number of scores; if it is too small, the outermost score times 1.5 is returned.
    """
    if quantile < 0.5:
        return -conformal_quantile(-scores, 1 - quantile, independent)
    count = (~np.isnan(scores)).sum(0)
    m = np.maximum(count if independent is None else independent, 1e-9)
    rank = np.ceil((m + 1) / m * quantile * count - 1e-9)
    place = np.clip(rank, 1, np.maximum(count, 1)).astype(np.int64) - 1
    found: Floats = np.take_along_axis(np.sort(scores, axis=0), place[None], axis=0)[0]
    outermost = np.where(found > 0, 1.5 * found, found / 1.5)
    return np.where(rank > count, outermost, found)


def _in_order(forecast: Floats, median: int) -> Floats:
    """Make the quantiles monotone, moving away from the median."""
    found = forecast.copy()
    found[..., median:] = np.maximum.accumulate(found[..., median:], axis=-1)
    found[..., : median + 1] = np.minimum.accumulate(found[..., median::-1], axis=-1)[..., ::-1]
    return found


class AdaptiveInterval:
    """Interval whose level adapts while values arrive, so that the long-run coverage is the requested one.

    α ← α + γ (target miss rate − miss)        Gibbs and Candès, Adaptive conformal inference, 2021
    """

    def __init__(self, scores: Floats, coverage: float, rate: float = 0.02, memory: int = 500) -> None:
        """Start from validation scores (n,): distance of each value outside its interval, negative inside."""
        self.scores = [float(score) for score in scores[~np.isnan(scores)]][-memory:]
        self.target = self.level = 1 - coverage
        self.rate, self.memory = rate, memory

    @property
    def offset(self) -> float:
        """Amount by which the next interval is widened on both sides."""
        if self.level <= 0 or not self.scores:
            return float(max(self.scores, default=0.0) * 1.5)
        if self.level >= 1:
            return float(min(self.scores))
        rank = math.ceil((len(self.scores) + 1) * (1 - self.level) - 1e-9)
        return sorted(self.scores)[min(max(rank, 1), len(self.scores)) - 1]

    def see(self, score: float) -> None:
        """Update with the score of a new value: its distance outside the interval before widening."""
        miss = score > self.offset
        self.level += self.rate * (self.target - miss)
        self.scores = [*self.scores, score][-self.memory :]


class Anomaly(NamedTuple):
    """Residuals and p-values of observed values."""

    residual: Floats
    """Signed, in standard deviations of the forecast."""
    p_value: Floats
    """NaN where nothing was observed."""


def residuals(target: Floats, forecast: Floats, quantiles: Sequence[float], least: Floats | float = 0.0) -> Floats:
    """Return residuals (…,) of values and their forecasts (…, Q), in standard deviations.

    Positive errors are divided by the upper half of the interval, negative ones by the lower half. `least` is the
    smallest standard deviation that is used.
    """
    median = int(np.argmin(np.abs(np.array(quantiles) - 0.5)))
    if len(quantiles) < 2:
        raise OptionError("anomalies need a prediction interval, and one quantile has none; give more with --quantiles")
    error = target - forecast[..., median]
    above, below = (_deviation(forecast, quantiles, median, end) for end in (len(quantiles) - 1, 0))
    deviation = np.where(error >= 0, above, below)
    floor = np.maximum(least, 1e-12 * np.maximum(np.abs(target), 1e-300))
    return np.divide(error, np.maximum(deviation, floor))


def anomalies(residual: Floats, before: Floats) -> Anomaly:
    """Return p-values of residuals (…,) relative to the residuals of a validation set; NaN is ignored."""
    known = np.sort(np.abs(before[~np.isnan(before)]))
    if not len(known):
        raise OptionError("anomalies need residuals of held-out values, and there are none")
    as_large = len(known) - np.searchsorted(known, np.abs(residual), side="left")
    p = (1 + as_large) / (len(known) + 1)
    return Anomaly(residual, np.where(np.isnan(residual), np.nan, p))


def _deviation(forecast: Floats, quantiles: Sequence[float], median: int, end: int) -> Floats:
    """Return the standard deviation of a normal distribution with this median and outer quantile."""
    if end == median:  # quantiles on one side only: the other side is taken to be like it
        end = 0 if median else len(quantiles) - 1
    z = abs(NormalDist().inv_cdf(quantiles[end]))
    found: Floats = np.abs(forecast[..., end] - forecast[..., median]) / z
    return found
