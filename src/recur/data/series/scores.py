"""Forecast metrics.

MSE, MAE  of standardised values: errors in standard deviations of the training set (as on ETT)
MASE      mean |y − ŷ| / mean |y_t − y_{t−m}| over the training set: 1 is the in-sample error of the seasonal naive
          forecast, one step ahead (Hyndman and Koehler 2006)
sMAPE     mean 200 |y − ŷ| / (|y| + |ŷ|), in per cent (as in M4)
OWA       (sMAPE / sMAPE of naive 2 + MASE / MASE of naive 2) / 2 (as in M4)
pinball   mean max(q e, (q − 1) e), e = y − ŷ_q: minimised by the q-quantile
CRPS      2 mean pinball over the quantiles, an approximation of the integral over all quantiles; in deviations
WQL       Σ 2 pinball / Σ |y|, mean over the quantiles: the weighted quantile loss (as in DeepAR)
coverage  fraction of values inside a prediction interval; its width in the scales of MASE
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recur.data.series.panel import Panel
from recur.data.text.stream import Floats, Ids
from recur.errors import OptionError
from recur.utils.plotting import new_figure, save


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
    save(figure, path)
