"""Rolling origin: forecast, move on by one step, forecast again; every forecast of a step is scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recur.errors import OptionError
from recur.series.linear import Form, fit_autoregression
from recur.series.naive import Plain, SeasonalNaive, naive_forecasts
from recur.series.scores import coverage, mase_scale, pinball, smape
from recur.series.table import SeriesTable
from recur.text.arrays import Floats

Forecast = Callable[[int], Floats]
"""From how many values are known to the quantiles (steps, series, Q) of those that follow."""


@dataclass(frozen=True)
class Rolling:
    """What the forecasts from every origin were, and what came; steps beyond the end of a series are cut."""

    first: int
    """How many values were known at the first origin."""
    targets: list[Floats]
    """From each origin: (steps, series)."""
    predictions: list[Floats]
    """From each origin: (steps, series, Q)."""
    quantiles: tuple[float, ...]
    scale: Floats
    """(series,): what errors are measured by."""

    def scores(self) -> dict[str, Any]:
        """MASE, overall and by steps ahead, and sMAPE of the median; of all quantiles the pinball loss, in units of the
        series and of its scale; coverage of the band between the outermost two."""
        target, prediction = np.concatenate(self.targets), np.concatenate(self.predictions)
        median = self.quantiles.index(0.5)
        both = zip(self.targets, self.predictions, strict=True)
        errors = [np.abs(y - predicted[..., median]) / self.scale for y, predicted in both]
        ahead = max(map(len, errors))
        found: dict[str, Any] = {
            "mase": float(np.concatenate(errors).mean()),
            "smape": smape(target, prediction[..., median]),
            "mase_by_step": [float(np.mean([e[j] for e in errors if len(e) > j])) for j in range(ahead)],
        }
        if len(self.quantiles) > 1:
            levels = list(enumerate(self.quantiles))
            found["pinball"] = float(np.mean([pinball(target, prediction[..., k], q) for k, q in levels]))
            scaled = [pinball(target / self.scale, prediction[..., k] / self.scale, q) for k, q in levels]
            found["pinball_scaled"] = float(np.mean(scaled))
            found["coverage"] = coverage(target, prediction[..., 0], prediction[..., -1])
        return found


def mean_scores(results: Sequence[Rolling]) -> dict[str, Any]:
    """The mean scores of several tables, each counted alike."""
    parts = [result.scores() for result in results]
    return {name: np.mean([part[name] for part in parts], axis=0).tolist() for name in parts[0]}


def roll(
    table: SeriesTable, n: int, horizon: int, season: int, quantiles: tuple[float, ...], forecast: Forecast
) -> Rolling:
    """From every origin: after n values, after n + 1, … until one is left to forecast."""
    targets, predictions = [], []
    for end in range(n, len(table)):
        steps = min(horizon, len(table) - end)
        targets.append(table.values[end : end + steps])
        predictions.append(forecast(end)[:steps])
    return Rolling(n, targets, predictions, quantiles, mase_scale(table.values[:n], season))


def baselines(table: SeriesTable, n: int, horizon: int, season: int, lags: int) -> dict[str, Rolling]:
    """The naive forecasts and a linear autoregression, fitted to the first n values, on so many lags or on as many as a
    season and one have."""
    values, at = table.values, np.arange(n, len(table))
    plain: dict[str, Plain] = {"naive": naive_forecasts}
    if season > 1:
        plain["seasonal naive"] = SeasonalNaive(season)
    try:
        linear = fit_autoregression(values[:n], horizon, Form(lags or season + 1))
        plain[linear.name] = linear
    except OptionError:
        pass  # too short a series to fit one: it is not in the table
    found = {name: forecast(values, at, horizon)[..., None] for name, forecast in plain.items()}
    return {name: _rolled(table, n, horizon, season, made) for name, made in found.items()}


def _rolled(table: SeriesTable, n: int, horizon: int, season: int, made: Floats) -> Rolling:
    return roll(table, n, horizon, season, (0.5,), lambda end: made[end - n])
