"""How good forecasts are.

MASE      mean |y − ŷ| / mean |y_t − y_{t−m}| over the training part: 1 is the seasonal naive one, one step ahead,
          where it was fitted (Hyndman and Koehler 2006)
sMAPE     mean 200 |y − ŷ| / (|y| + |ŷ|), in per cent
pinball   mean max(q e, (q − 1) e), e = y − ŷ_q: what the q-quantile minimises
coverage  the share of values inside a band
"""

from __future__ import annotations

import numpy as np

from recur.errors import OptionError
from recur.text.arrays import Floats


def mase_scale(train: Floats, season: int) -> Floats:
    """Mean |y_t − y_{t−season}| of each series (T, series)."""
    if len(train) <= season:
        raise OptionError(f"MASE with a season of {season} needs more than {season} values, got {len(train)}")
    scale: Floats = np.abs(train[season:] - train[:-season]).mean(0)
    if not (scale > 0).all():
        raise OptionError("a series repeats itself exactly from season to season: MASE has nothing to measure by")
    return scale


def smape(target: Floats, prediction: Floats) -> float:
    total = np.abs(target) + np.abs(prediction)
    return float(np.mean(200 * np.abs(target - prediction) / np.where(total > 0, total, 1)))


def pinball(target: Floats, prediction: Floats, quantile: float) -> float:
    error = target - prediction
    return float(np.maximum(quantile * error, (quantile - 1) * error).mean())


def coverage(target: Floats, low: Floats, high: Floats) -> float:
    return float(((low <= target) & (target <= high)).mean())
