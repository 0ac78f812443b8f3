"""Bands whose coverage holds: quantiles moved by what they missed where they were not fitted (conformal prediction).

For each quantile q and each step ahead, the scores of n forecasts that were not learned from are e = (y − ŷ_q) / s, s a
spread of the series. The quantile is moved by the ⌈(n + 1) q⌉-th smallest of them (⌊(n + 1) q⌋-th below the median), so
that a new value that is exchangeable with those lies below it with a probability of at least q (at most, below the
median): Vovk 2005; for quantiles that a model gives, Romano, Patterson and Candès 2019. The median stays as it is.

Few forecasts have no such score at the outer quantiles. Then steps, and series, lend theirs to each other, each divided
by the typical miss of its own step and series. Values that follow each other are not exchangeable, and forecasts that
overlap miss together: `Adaptive` moves the level while values come, until it holds (Gibbs and Candès 2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recur.errors import OptionError
from recur.text.arrays import Floats

ENOUGH = 50
"""Scores of a step and series of its own; with fewer they are lent."""


@dataclass(frozen=True)
class Bands:
    quantiles: tuple[float, ...]
    offsets: Floats
    """(k, C, Q), in spreads: what is added to each quantile. C is 1 where series share theirs."""

    @staticmethod
    def fit(target: Floats, forecast: Floats, quantiles: Sequence[float], spread: Floats | float = 1.0) -> Bands:
        """From what came (N, k, C), NaN where nothing did, and its forecasts (N, k, C, Q) by a model that had not seen
        it; the spread is one for all, or (C,), or of each forecast."""
        N, k, C, Q = forecast.shape
        if target.shape != (N, k, C) or len(quantiles) != Q:
            raise OptionError(
                f"bands need values {(N, k, C)} and {Q} quantiles, got {target.shape} and {len(quantiles)}"
            )
        if not (~np.isnan(target)).any():
            raise OptionError("bands need values that were not learned from, and there are none")
        wide = np.broadcast_to(spread, target.shape)
        scores = (target[..., None] - forecast) / wide[..., None]
        typical = _typical(scores[..., _median(quantiles)])
        levels = [_offsets(scores[..., j], typical, q) for j, q in enumerate(quantiles)]
        return Bands(tuple(quantiles), np.stack(levels, axis=-1))

    def apply(self, forecast: Floats, spread: Floats | float = 1.0) -> Floats:
        """Forecasts (…, k, C, Q) moved, and in order."""
        wide = np.broadcast_to(spread, forecast.shape[:-1])
        k = forecast.shape[-3]
        moved = forecast + self.offsets[:k] * wide[..., None]
        return _in_order(moved, _median(self.quantiles))


def conformal_quantile(scores: Floats, quantile: float) -> float:
    """Of scores (n,): the one that a new score lies below with a probability of at least this, above the median, or at
    most this, below; infinite where there are too few to say."""
    n = len(scores)
    if quantile < 0.5:
        return -conformal_quantile(-scores, 1 - quantile)
    rank = math.ceil((n + 1) * quantile - 1e-9)
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= n else np.inf


def _median(quantiles: Sequence[float]) -> int:
    return int(np.argmin(np.abs(np.array(quantiles) - 0.5)))


def _typical(errors: Floats) -> Floats:
    """(k, C): the mean miss |y − ŷ| of each step and series, rising with the steps as the smallest line of its kind; a
    step or a series without values has that of the others."""
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
    """The nearest line that does not fall (pool adjacent violators): a later step is not easier, but for chance."""
    parts: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        parts.append((float(value), float(weight), 1))
        while len(parts) > 1 and (parts[-2][0] >= parts[-1][0] or not parts[-1][1]):
            (a, n, i), (b, m, j) = parts[-2:]
            parts[-2:] = [((a * n + b * m) / max(n + m, 1e-300), n + m, i + j)]
    return np.concatenate([np.full(count, value) for value, _, count in parts])


def _offsets(scores: Floats, typical: Floats, quantile: float) -> Floats:
    """(k, C) of scores (N, k, C)."""
    _, k, C = scores.shape
    if quantile == 0.5:
        return np.zeros((k, C))
    counts = (~np.isnan(scores)).sum(0)
    if counts.min() >= ENOUGH:
        own = [[_of(scores[:, j, c], quantile) for c in range(C)] for j in range(k)]
        return np.array(own)
    relative = scores / typical
    per_step = (~np.isnan(scores)).sum((0, 2))
    if per_step.min() >= ENOUGH:  # series lend to each other
        found: Floats = np.array([_of(relative[:, j].ravel(), quantile) for j in range(k)])[:, None] * typical
        return found
    return _of(relative.ravel(), quantile) * typical


def _of(scores: Floats, quantile: float) -> float:
    """The conformal quantile; where there are too few for one, the outermost score and half as much again."""
    there = scores[~np.isnan(scores)]
    found = conformal_quantile(there, quantile)
    if np.isfinite(found):
        return found
    return float(1.5 * (there.max() if found > 0 else there.min()))


def _in_order(forecast: Floats, median: int) -> Floats:
    """No quantile crosses the median, or one that is nearer to it."""
    found = forecast.copy()
    found[..., median:] = np.maximum.accumulate(found[..., median:], axis=-1)
    found[..., : median + 1] = np.minimum.accumulate(found[..., median::-1], axis=-1)[..., ::-1]
    return found


class Adaptive:
    """The level at which scores are read, moved while values come: down after each that a band missed, up after others,
    so that in the long run the share that it misses is the one that was asked for, whatever the series does.

        α ← α + γ (miss − hit share of what came)        Gibbs and Candès, Adaptive conformal inference, 2021
    """

    def __init__(self, scores: Floats, coverage: float, rate: float = 0.02, memory: int = 500) -> None:
        """Scores (n,) of a validation part: how far each value lay outside of its band, negative inside."""
        self.scores = [float(score) for score in scores[~np.isnan(scores)]][-memory:]
        self.target = self.level = 1 - coverage
        self.rate, self.memory = rate, memory

    @property
    def offset(self) -> float:
        """By how much the next band is to be widened on both sides."""
        if self.level <= 0 or not self.scores:
            return float(max(self.scores, default=0.0) * 1.5)
        if self.level >= 1:
            return float(min(self.scores))
        rank = math.ceil((len(self.scores) + 1) * (1 - self.level) - 1e-9)
        return sorted(self.scores)[min(max(rank, 1), len(self.scores)) - 1]

    def see(self, score: float) -> None:
        """What came: how far it lay outside of the band before that was widened."""
        miss = score > self.offset
        self.level += self.rate * (self.target - miss)
        self.scores = [*self.scores, score][-self.memory :]
