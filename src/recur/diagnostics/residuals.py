"""What a forecaster leaves unexplained on its validation part, and whether its bands cover what they say.

residuals    what came minus the median, one step ahead, over its deviation. A good forecast leaves noise: no bias, and
             no correlation of a residual with the one before it, ρ₁, or a season before it
bands        the share of values below each quantile, beside what the quantile says. Offsets of bands were fitted on
             the validation part, so that they are fitted anew here, on its first half, and measured on the second
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recur.data.series.conformal import Bands
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.i18n import said
from recur.tasks.forecast import measuring
from recur.tasks.forecast.predictor import SeriesForecaster

BIASED = 0.3
"""Deviations that the mean of residuals may lie from 0."""
REMEMBERS = 0.4
"""|ρ| from which on something is left in residuals that could be forecast; at least 3/√n."""
OFF = 0.15
"""By which coverage may differ from what bands say."""
FEWEST = 12
DRAWN = 300


def residuals_and_bands(predictor: SeriesForecaster) -> list[Measurement]:
    task, model = predictor.task, predictor.model
    data = task.read(predictor.run.vocabs)
    part = task.part(data.panel, data.splits, "valid")
    which, ends = measuring.pairs(data.rows, part.origins())
    scaled = task.forecast(model, data.rows, which, ends)
    came = measuring.coming(data.rows, which, ends, part.horizon).astype(float)
    quantiles = task.options.quantiles
    middle = quantiles.index(0.5)
    found = [_residuals(came, scaled[..., middle].astype(float), which, task.season)]
    if len(quantiles) > 1:
        found.append(bands_of(came, scaled.astype(float), quantiles, task.options.bands != "model"))
    return found


def _residuals(came: np.ndarray, median: np.ndarray, which: np.ndarray, season: int) -> Measurement:
    errors = came - median  # (N, k, V)
    one = errors[:, 0, 0]
    by_step = np.sqrt(np.nanmean(np.square(errors), axis=(0, 2)))
    ahead = [one[which == row] for row in np.unique(which)]
    series = [part[~np.isnan(part)] for part in ahead]
    series = [part for part in series if len(part) >= FEWEST]
    if not series:
        few = said("not known: fewer than {count} forecasts in a row were measured", count=FEWEST)
        return Measurement(Finding("residuals", Level.UNKNOWN, 0.0, REMEMBERS, few), {"by_step": by_step.tolist()})
    whole = np.concatenate(series)
    deviation = float(whole.std()) or 1.0
    bias = float(whole.mean()) / deviation
    lags = [1, season] if season > 1 and min(map(len, series)) > 2 * season else [1]
    correlations = {lag: float(np.mean([correlation(part, lag) for part in series])) for lag in lags}
    lag = max(correlations, key=lambda k: abs(correlations[k]))
    value, limit = abs(correlations[lag]), max(REMEMBERS, 3 / np.sqrt(len(whole)))
    numbers: dict[str, Any] = {
        "residuals": series[0][:DRAWN].tolist(), "by_step": by_step.tolist(), "bias": bias,
        "correlations": {str(k): v for k, v in correlations.items()},
    }  # fmt: skip
    detail = said(
        "bias {bias:+.2f} deviations, correlation {rho:+.2f} with {lag} steps before",
        bias=bias, rho=correlations[lag], lag=lag,
    )  # fmt: skip
    if abs(bias) > BIASED:
        verdict = said("forecasts are biased: {detail}", detail=detail)
        return Measurement(Finding("residuals", Level.WARNING, abs(bias), BIASED, verdict), numbers)
    if value > limit:
        verdict = said("residuals follow each other: something is left that could be forecast: {detail}", detail=detail)
        return Measurement(Finding("residuals", Level.WARNING, value, limit, verdict), numbers)
    verdict = said("residuals look like noise: {detail}", detail=detail)
    return Measurement(Finding("residuals", Level.OK, value, limit, verdict), numbers)


def correlation(series: np.ndarray, lag: int) -> float:
    a, b = series[lag:] - series.mean(), series[:-lag] - series.mean()
    scale = float(np.square(series - series.mean()).sum())
    return float((a * b).sum() / scale) if scale else 0.0


def bands_of(came: np.ndarray, scaled: np.ndarray, quantiles: tuple[float, ...], move: bool) -> Measurement:
    half = len(came) // 2
    if half < FEWEST:
        few = said("not known: {count} forecasts are too few to tell how often bands cover", count=len(came))
        return Measurement(Finding("bands", Level.UNKNOWN, 0.0, OFF, few))
    made = Bands.fit(came[:half], scaled[:half], quantiles).apply(scaled[half:]) if move else scaled[half:]
    there = ~np.isnan(came[half:])
    below = [float((came[half:] <= made[..., q])[there].mean()) for q in range(len(quantiles))]
    nominal, covered = quantiles[-1] - quantiles[0], below[-1] - below[0]
    numbers = {"quantiles": list(quantiles), "below": below, "nominal": nominal, "covered": covered}
    detail = said("bands of {nominal:.0%} cover {covered:.0%}", nominal=nominal, covered=covered)
    if abs(nominal - covered) > OFF:
        verdict = said(
            "bands are {way}: {detail}",
            way=said("too narrow") if covered < nominal else said("too wide"),
            detail=detail,
        )
        return Measurement(Finding("bands", Level.WARNING, abs(nominal - covered), OFF, verdict), numbers)
    return Measurement(
        Finding("bands", Level.OK, abs(nominal - covered), OFF, said("bands hold: {detail}", detail=detail)), numbers
    )
