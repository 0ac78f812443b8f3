"""Baselines. Each takes the past (T, series) and gives the next k values (k, series).

naive                   ŷ_{T+j} = y_T
seasonal_naive          ŷ_{T+j} = the value one season before, or two where that lies ahead
linear_autoregression   y_t = c + Σ_i φ_i y_{t−i}, least squares over the training part, iterated
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recur.errors import OptionError
from recur.text.arrays import Floats

Forecast = Callable[[Floats, int], Floats]


def naive(past: Floats, k: int) -> Floats:
    return np.repeat(past[-1:], k, axis=0)


def seasonal_naive(past: Floats, k: int, season: int) -> Floats:
    if len(past) < season:
        raise OptionError(f"a season of {season} needs at least {season} values before the first forecast")
    last = past[len(past) - season :]
    return last[np.arange(k) % season]


def linear_autoregression(train: Floats, lags: int) -> Forecast:
    """Fitted to each series on its own."""
    if len(train) < 2 * lags + 2:
        raise OptionError(f"a linear autoregression on {lags} values needs {2 * lags + 2} to fit, got {len(train)}")
    weights = []
    for series in train.T:
        rows = np.lib.stride_tricks.sliding_window_view(series, lags)[:-1]
        design = np.column_stack([np.ones(len(rows)), rows])
        weights.append(np.linalg.lstsq(design, series[lags:], rcond=None)[0])

    def forecast(past: Floats, k: int) -> Floats:
        if len(past) < lags:
            raise OptionError(f"a linear autoregression on {lags} values needs as many before it forecasts")
        path = np.concatenate([past[len(past) - lags :], np.empty((k, past.shape[1]))])
        for t in range(lags, lags + k):
            for column, phi in enumerate(weights):
                path[t, column] = phi[0] + path[t - lags : t, column] @ phi[1:]
        return path[lags:]

    return forecast
