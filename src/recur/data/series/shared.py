"""One linear autoregression for all series of a panel: what short series cannot tell alone, many tell together.

    z = y or ln y,   x_i = (z_{o−i} − z_{o−1}) / s,   ŷ_{o+j} = z_{o−1} + s (φ_0j + Σ_i φ_ij x_i)

s is the deviation of the window, so that series of any level and liveliness look alike. The weights are least squares
over the windows of all series, in which a series of n windows counts like √n of them. There are several windows, the
longest of some years, and the forecast is the mean of theirs: on M4's weeks that is worth more than any one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recur.data.series.scores import mase_scales
from recur.data.series.windows import blocks, histories, windows
from recur.data.text.arrays import Floats, Ids
from recur.errors import OptionError

HORIZONS = (4, 8, 16, 24)
"""How long windows are."""

SHORTEST = 20
"""Values that a window has at least, or a quarter of what a usual series has; before the first, it is repeated."""

MOST_WINDOWS = 1000
"""Of a series: the last ones."""

RIDGE = 1e-3
"""A share of the inputs' mean square."""


@dataclass(frozen=True)
class SharedAutoregression:
    weights: tuple[Floats, ...]
    """Of each window, (1 + lags, k): of 1, and of its values, the oldest first; the last one's are zeros."""
    log: bool = False

    name: ClassVar[str] = "shared linear autoregression"

    def __call__(self, values: Floats, at: Ids, k: int) -> Floats:
        """(N, k, C) from values (T, C) without gaps."""
        z = np.log(values) if self.log else values
        made = [_forecasts(z, at, weights[:, :k]) for weights in self.weights]
        found: Floats = np.mean([np.exp(np.minimum(one, 700.0)) if self.log else one for one in made], axis=0)
        return found


def fit_shared(series: Sequence[Floats], k: int, lags: Sequence[int] = (), log: bool = False) -> SharedAutoregression:
    """To series (T, C) without gaps, positive ones for their logarithms; on windows of so many lags, or of some
    horizons."""
    usual = int(np.median([len(values) for values in series]))
    lags = lags or sorted({max(min(n * k, usual), 2) for n in HORIZONS})
    seen = [np.log(values) if log else values for values in series]
    shortest = max(min(SHORTEST, usual // 4), 2)
    return SharedAutoregression(tuple(_fit(seen, k, n, shortest) for n in lags), log)


def logarithms_serve(series: Sequence[Floats], k: int, fitted: Sequence[int]) -> bool:
    """Whether, fitted to the first so many values of each series, one of their logarithms forecasts the k that follow
    better: by the mean absolute error in units of MASE. It is asked of one window, for all."""
    if not all(bool((values > 0).all()) for values in series):
        return False
    first = [values[:n] for values, n in zip(series, fitted, strict=True)]
    lags = [max(min(HORIZONS[1] * k, int(np.median(fitted))), 2)]
    plain, logs = (_error(fit_shared(first, k, lags, log), series, k, fitted) for log in (False, True))
    return logs < plain


def _fit(series: Sequence[Floats], k: int, lags: int, shortest: int) -> Floats:
    products, targets = np.zeros((1 + lags, 1 + lags)), np.zeros((1 + lags, k))
    for z in series:
        at = np.arange(shortest, len(z) - k + 1)[-MOST_WINDOWS:]
        for part in blocks(at, (lags + k) * z.shape[1]):
            past, last, unit = _normalised(z, part, lags)
            moved = unit[:, 0] > 0  # a window that stood still has no unit
            x = past.transpose(0, 2, 1)[moved]
            y = ((windows(z, part, k) - last) / np.where(unit > 0, unit, 1.0)).transpose(0, 2, 1)[moved]
            design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
            products += design.T @ design / len(at) ** 0.5
            targets += design.T @ y / len(at) ** 0.5
    if not products[0, 0]:
        raise OptionError(f"no series has a window of {shortest} values that are not all the same, and {k} behind it")
    ridge = RIDGE * np.trace(products[1:, 1:]) / lags
    weights = np.zeros((1 + lags, k))  # the last value less itself is nothing, and has no weight
    weights[:-1] = np.linalg.solve(products[:-1, :-1] + ridge * np.eye(lags), targets[:-1])
    return weights


def _forecasts(z: Floats, at: Ids, weights: Floats) -> Floats:
    past, last, unit = _normalised(z, at, len(weights) - 1)
    made = (past.transpose(0, 2, 1) @ weights[1:] + weights[0]).transpose(0, 2, 1)
    found: Floats = last + unit * made
    return found


def _error(model: SharedAutoregression, series: Sequence[Floats], k: int, fitted: Sequence[int]) -> float:
    """Of forecasts of what follows the values that it was fitted to; each series counts alike."""
    errors = []
    for values, n in zip(series, fitted, strict=True):
        if 2 <= n < len(values):
            at = np.array([n])
            error = np.abs(model(values, at, k) - windows(values, at, k)) / mase_scales(values[:n], 1)
            errors += [float(np.nanmean(error))] if not np.isnan(error).all() else []
    return float(np.mean(errors)) if errors else np.inf


def _normalised(z: Floats, at: Ids, lags: int) -> tuple[Floats, Floats, Floats]:
    """The window before each origin (N, lags, C), its last value and its unit (N, 1, C), 0 where it stood still."""
    past = histories(z, at, lags)
    last, unit = past[:, -1:], past.std(1, keepdims=True)
    unit = np.where(unit > 1e-9 * np.abs(past).max(1, keepdims=True), unit, 0.0)
    return (past - last) / np.where(unit > 0, unit, 1.0), last, unit
