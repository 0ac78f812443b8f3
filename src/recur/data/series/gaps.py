"""Gaps, filled for what cannot do without a value: with what was known before, never with what came after."""

from __future__ import annotations

import numpy as np

from recur.data.text.arrays import Floats


def fill(values: Floats, season: int = 1) -> Floats:
    """(T, C): NaN becomes the last value of the same phase of the season, else the last value; before the first value,
    that one, and 0 in a column without any."""
    if not np.isnan(values).any():
        return values
    T, C = values.shape
    whole = -(-T // season) * season
    padded = np.full((whole, C), np.nan)
    padded[:T] = values
    seasonal = _carried(padded.reshape(-1, season * C)).reshape(whole, C)[:T]
    carried = _carried(np.where(np.isnan(values), seasonal, values))
    for column in carried.T:
        seen = column[~np.isnan(column)]
        column[np.isnan(column)] = seen[0] if len(seen) else 0.0
    return carried


def _carried(values: Floats) -> Floats:
    """The last value that is one, down each column."""
    rows = np.where(np.isnan(values), 0, np.arange(len(values))[:, None])
    return np.take_along_axis(values, np.maximum.accumulate(rows, axis=0), axis=0)
