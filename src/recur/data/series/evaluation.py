"""Evaluation of forecasts: metrics, calibrated prediction intervals and anomalies.

MSE, MAE  of standardised values: errors in standard deviations of the training set (as on ETT)
MASE      mean |y − ŷ| / mean |y_t − y_{t−m}| over the training set: 1 is the in-sample error of the seasonal naive
          forecast, one step ahead (Hyndman and Koehler 2006)
sMAPE     mean 200 |y − ŷ| / (|y| + |ŷ|), in per cent (as in M4)
OWA       (sMAPE / sMAPE of naive 2 + MASE / MASE of naive 2) / 2 (as in M4)
pinball   mean max(q e, (q − 1) e), e = y − ŷ_q: minimised by the q-quantile
CRPS      2 mean pinball over the quantiles, an approximation of the integral over all quantiles; in deviations
WQL       Σ 2 pinball / Σ |y|, mean over the quantiles: the weighted quantile loss (as in DeepAR)
coverage  fraction of values inside a prediction interval; its width in the scales of MASE

Prediction intervals are conformal: quantiles are shifted by their errors on held-out forecasts. For each quantile q and
each step ahead, the scores of n held-out forecasts are e = (y − ŷ_q) / s with a spread s of the series. The quantile is
shifted by the ⌈(n + 1) q⌉-th smallest score (⌊(n + 1) q⌋-th below the median). Then a new value that is exchangeable
with the held-out values is below it with probability at least q (at most q, below the median): Vovk 2005; for quantiles
of a model, Romano, Patterson and Candès 2019. The median is not shifted.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from recur.data.series.panel import Panel
from recur.data.text.stream import Floats, Ids
from recur.errors import OptionError
from recur.utils.files import new_figure, save_figure


def mase_scales(train: Floats, season: int) -> Floats:
    """Return mean |y_t − y_{t−season}| of each series (T, series), ignoring gaps; NaN if there is no difference."""
    apart = np.abs(train[season:] - train[:-season]) if len(train) > season else np.zeros((0, train.shape[1]))
    there = ~np.isnan(apart)
    scale = np.where(there, apart, 0.0).sum(0) / np.maximum(there.sum(0), 1)
    return np.where(scale > 0, scale, np.nan)


def deviations(train: Floats) -> Floats:
    """Return the standard deviation of each series (T, series), ignoring gaps; 1 if it is 0."""
    there = ~np.isnan(train)
    count = np.maximum(there.sum(0), 1)
    mean = np.where(there, train, 0.0).sum(0) / count
    spread = np.sqrt((np.where(there, train - mean, 0.0) ** 2).sum(0) / count)
    return np.where(spread > 0, spread, 1.0)


def _smapes(target: Floats, prediction: Floats) -> Floats:
    total = np.abs(target) + np.abs(prediction)
    found: Floats = 200 * np.abs(target - prediction) / np.where(total > 0, total, 1)
    return found


def _pinballs(target: Floats, prediction: Floats, quantile: float) -> Floats:
    error = target - prediction
    return np.maximum(quantile * error, (quantile - 1) * error)


def owa(scores: Mapping[str, float], naive2: Mapping[str, float]) -> float | None:
    """Return the overall weighted average of M4; None if naive 2 makes no error."""
    if not naive2["smape"] or not naive2["mase"]:
        return None
    return (scores["smape"] / naive2["smape"] + scores["mase"] / naive2["mase"]) / 2


class ForecastScores:
    """Accumulator of forecast metrics.

    Every series counts equally: the mean over its values, then the mean over series. Only WQL, and MASE by steps ahead,
    are computed over all values at once.
    """

    def __init__(self, quantiles: Sequence[float], horizon: int) -> None:
        self.quantiles = tuple(quantiles)
        self.median = self.quantiles.index(0.5)
        self.sums: dict[str, dict[str, Floats]] = {}
        """For each series, sums of each metric, (C,)."""
        self.steps = np.zeros((2, horizon))
        """For each step ahead, the sum and number of scaled errors."""
        self.losses, self.total = np.zeros(len(self.quantiles)), 0.0

    def add(self, key: str, target: Floats, forecast: Floats, scale: Floats, deviation: Floats) -> None:
        """Add forecasts of the series `key`.

        target     (N, k, C), NaN where nothing was observed
        forecast   (N, k, C, Q), or (N, k, C) for the median alone
        scale, deviation   (C,), of the training set
        """
        if forecast.ndim == target.ndim:
            forecast = forecast[..., None]
        there = ~np.isnan(target)
        y, middle = np.where(there, target, 0.0), forecast[..., self.median]
        error = np.abs(y - middle)
        scaled = np.where(there & ~np.isnan(scale), error / scale, 0.0)
        found = {
            "count": there,
            "mse": (error / deviation) ** 2,
            "mae": error / deviation,
            "smape": _smapes(y, middle),
            "mase": scaled,
        }
        self.steps[0, : target.shape[1]] += scaled.sum((0, 2))
        self.steps[1, : target.shape[1]] += (there & ~np.isnan(scale)).sum((0, 2))
        if len(self.quantiles) > 1:
            loss = np.zeros_like(y)
            for k, quantile in enumerate(self.quantiles):
                part = _pinballs(y, forecast[..., k], quantile)
                self.losses[k] += part[there].sum()
                loss += part / len(self.quantiles)
            low, high = forecast[..., 0], forecast[..., -1]
            found |= {
                "pinball": loss,
                "pinball_scaled": loss / scale,
                "crps": 2 * loss / deviation,
                "coverage": (low <= y) & (y <= high),
                "width": (high - low) / scale,
            }
        self.total += float(np.abs(y).sum())
        sums = self.sums.setdefault(key, {})
        for name, values in found.items():
            sums[name] = sums.get(name, 0.0) + np.where(there, values, 0.0).sum((0, 1))
        sums["scale"] = scale

    def scores(self) -> dict[str, Any]:
        """Return the mean over all series that have a value."""
        if not self.sums:
            raise OptionError("no forecast was measured: no part of a series holds a whole horizon")
        columns = {
            name: np.concatenate([sums[name] for sums in self.sums.values()]) for name in next(iter(self.sums.values()))
        }
        count, scale = columns.pop("count"), columns.pop("scale")
        seen = count > 0
        means = {name: column[seen] / count[seen] for name, column in columns.items()}
        by_scale = ~np.isnan(scale[seen])
        if not by_scale.any():
            raise OptionError("a series repeats itself exactly from season to season: MASE has nothing to measure by")
        in_scales = ("mase", "pinball_scaled", "width")
        found: dict[str, Any] = {
            name: float((mean[by_scale] if name in in_scales else mean).mean()) for name, mean in means.items()
        }
        found["mase_by_step"] = (self.steps[0] / np.maximum(self.steps[1], 1)).tolist()
        if len(self.quantiles) > 1:
            found["wql"] = float(2 * self.losses.mean() / max(self.total, 1e-300))
        return found


MOST = 8
"""Largest number of series and variables in a figure."""


def draw(
    panel: Panel, origins: Sequence[Ids], forecasts: Sequence[Floats], quantiles: Sequence[float], path: str
) -> None:
    """Draw the end of the first series with forecasts (N, k, C, Q) from origins (N,) to a file (.png, .svg or .pdf)."""
    C = len(panel.targets)
    shown = [(k, c) for k in range(len(panel)) for c in range(C) if len(origins[k])][:MOST]
    figure, all_axes = new_figure(rows=len(shown), width=9, height=3.2 * len(shown))
    middle = list(quantiles).index(0.5)
    for (k, c), axes in zip(shown, all_axes, strict=True):
        one, at, made = panel.series[k], origins[k], forecasts[k][:, :, c]
        horizon = made.shape[1]
        first, end = int(at[0]), int(at[-1]) + horizon
        begin = max(0, first - 3 * (end - first))
        name = panel.targets[c] if len(panel) == 1 else one.id if C == 1 else f"{one.id}/{panel.targets[c]}"
        axes.plot(np.arange(begin, end), one.values[begin:end, c], color="black", lw=1, label=name)
        for n in range(0, len(at), horizon):
            steps = np.arange(at[n], at[n] + horizon)
            label, band = ("forecast", f"{quantiles[0]:g} … {quantiles[-1]:g}") if not n else (None, None)
            axes.plot(steps, made[n, :, middle], color="tab:blue", lw=1.5, marker=".", label=label)
            if len(quantiles) > 1:
                axes.fill_between(steps, made[n, :, 0], made[n, :, -1], color="tab:blue", alpha=0.2, lw=0, label=band)
        if dates := panel.dates(one, begin, end - begin):
            ticks = np.linspace(0, len(dates) - 1, 7).astype(int)
            axes.set_xticks(begin + ticks, [dates[t] for t in ticks])
        axes.legend(frameon=False)
    save_figure(figure, path)


HISTORY = 4
"""Horizons of history that are drawn before a forecast, at least."""


def draw_future(panel: Panel, forecasts: Sequence[Floats], quantiles: Sequence[float], path: str) -> None:
    """Draw the end of the first series and the forecasts (1, k, C, Q) after them to a file (.png, .svg or .pdf)."""
    C = len(panel.targets)
    shown = [(k, c) for k in range(len(panel)) for c in range(C)][:MOST]
    figure, all_axes = new_figure(rows=len(shown), width=9, height=3.2 * len(shown))
    middle = list(quantiles).index(0.5)
    for (k, c), axes in zip(shown, all_axes, strict=True):
        one, made = panel.series[k], forecasts[k][0, :, c]
        horizon, end = len(made), len(one)
        begin = max(0, end - max(HISTORY * horizon, 48))
        name = panel.targets[c] if len(panel) == 1 else one.id if C == 1 else f"{one.id}/{panel.targets[c]}"
        axes.plot(np.arange(begin, end), one.values[begin:end, c], color="black", lw=1, label=name)
        last = one.values[end - 1 : end, c]
        steps = np.arange(end - 1, end + horizon)
        axes.plot(steps, [*last, *made[:, middle]], color="tab:blue", lw=1.5, marker=".", label="forecast")
        if len(quantiles) > 1:
            low, high = ([*last, *made[:, q]] for q in (0, -1))
            band = f"{quantiles[0]:g} … {quantiles[-1]:g}"
            axes.fill_between(steps, low, high, color="tab:blue", alpha=0.2, lw=0, label=band)
        if dates := panel.dates(one, begin, end + horizon - begin):
            ticks = np.linspace(0, len(dates) - 1, 7).astype(int)
            axes.set_xticks(begin + ticks, [dates[t] for t in ticks])
        axes.legend(frameon=False)
    save_figure(figure, path)


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
    """Return p-values of residuals (…,) relative to the residuals of a validation set; NaN is ignored.

    Between the residuals of the validation set p is interpolated, and beyond the largest it falls exponentially, at the
    rate of the largest tenth: so p-values rank, also those of residuals that are larger than all.
    """
    known = np.sort(np.abs(before[~np.isnan(before)]))
    if not len(known):
        raise OptionError("anomalies need residuals of held-out values, and there are none")
    size, n = np.abs(residual), len(known)
    p = (1 + n - np.interp(size, known, np.arange(n), left=0.0)) / (n + 1)
    tail = known[-max(n // 10, 1) :]
    rate = float(tail.mean() - tail[0]) or float(known[-1]) / max(np.log(n), 1.0) or 1.0
    p = p * np.exp(-np.maximum(np.nan_to_num(size) - known[-1], 0.0) / rate)
    return Anomaly(residual, np.where(np.isnan(residual), np.nan, p))


def _deviation(forecast: Floats, quantiles: Sequence[float], median: int, end: int) -> Floats:
    """Return the standard deviation of a normal distribution with this median and outer quantile."""
    if end == median:  # quantiles on one side only: the other side is taken to be like it
        end = 0 if median else len(quantiles) - 1
    z = abs(NormalDist().inv_cdf(quantiles[end]))
    found: Floats = np.abs(forecast[..., end] - forecast[..., median]) / z
    return found
