"""How unusual a value is, given what was forecast of it.

residual   (y − median) / deviation, that of a normal distribution with the band's outer quantile on the side of y
p-value    the share of forecasts of a validation part that missed by as much or more, the value itself counted:
           (1 + #{r_i ≥ r}) / (n + 1). Where values are as they were, it is at most p with a probability of at most p
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from recur.data.text.arrays import Floats
from recur.errors import OptionError


class Anomaly(NamedTuple):
    residual: Floats
    """Signed, in standard deviations of the forecast."""
    p_value: Floats
    """NaN, as the residual, where nothing was observed."""


def residuals(target: Floats, forecast: Floats, quantiles: Sequence[float], least: Floats | float = 0.0) -> Floats:
    """(…,) of values and their forecasts (…, Q): above the median by the upper half of the band, below by the lower;
    `least` is the smallest deviation that is believed."""
    median = int(np.argmin(np.abs(np.array(quantiles) - 0.5)))
    if len(quantiles) < 2:
        raise OptionError("an anomaly is told by a band, and one quantile alone has none; give more with --quantiles")
    error = target - forecast[..., median]
    above, below = (_deviation(forecast, quantiles, median, end) for end in (len(quantiles) - 1, 0))
    deviation = np.where(error >= 0, above, below)
    floor = np.maximum(least, 1e-12 * np.maximum(np.abs(target), 1e-300))
    return np.divide(error, np.maximum(deviation, floor))


def anomalies(residual: Floats, before: Floats) -> Anomaly:
    """Of residuals (…,), beside those of a validation part, NaN left out."""
    known = np.sort(np.abs(before[~np.isnan(before)]))
    if not len(known):
        raise OptionError("anomalies need residuals of values that were not learned from, and there are none")
    as_large = len(known) - np.searchsorted(known, np.abs(residual), side="left")
    p = (1 + as_large) / (len(known) + 1)
    return Anomaly(residual, np.where(np.isnan(residual), np.nan, p))


def _deviation(forecast: Floats, quantiles: Sequence[float], median: int, end: int) -> Floats:
    """Of a normal distribution with this median and this outer quantile."""
    if end == median:  # quantiles on one side only: the other side is taken to be like it
        end = 0 if median else len(quantiles) - 1
    z = abs(NormalDist().inv_cdf(quantiles[end]))
    found: Floats = np.abs(forecast[..., end] - forecast[..., median]) / z
    return found
