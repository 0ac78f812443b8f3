"""Base forecasts, around which a network forecasts: what it adds starts at zero, so that it begins as good as they are.

last       ŷ_{t+j} = y_t
season     ŷ_{t+j} = the mean of the last season
seasonal   ŷ_{t+j} = the value one season before, or two where that lies ahead
linear     ŷ_{t+j} = c_j + Σ_i φ_{ij} y_{t−i}, fitted to each series by itself before anything is learned
"""

from __future__ import annotations

import torch
from torch import Tensor


def recent_mean(values: Tensor, span: int) -> Tensor:
    """The mean of the last `span` values up to each step of (B, T, V); of fewer at the start."""
    if span == 1:
        return values
    T = values.shape[1]
    total = torch.cat([values.new_zeros(values.shape[0], 1, values.shape[2]), values.cumsum(1)], dim=1)
    steps = torch.arange(1, T + 1, device=values.device)
    first = (steps - span).clamp_min(0)
    return (total[:, 1:] - total[:, first]) / (steps - first)[:, None]


def seasonal(values: Tensor, ends: Tensor, horizon: int, season: int) -> Tensor:
    """(B, E, k, V), from steps `ends` (E,)."""
    ahead = torch.arange(horizon, device=values.device) % season
    places = (ends[:, None] + 1 - season + ahead).clamp_min(0)
    return values[:, places]


def linear(values: Tensor, ends: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """(B, E, k, V), by weights (R, V, 1 + lags, k), of 1 and of the last values, the oldest first, of the series that
    each of the rows (B,) is of. Before the first value stand others like it."""
    lags = weights.shape[2] - 1
    padded = torch.cat([values[:, :1].expand(-1, lags - 1, -1), values], dim=1)
    windows = padded.unfold(1, lags, 1)[:, ends]  # (B, E, V, lags)
    if brings_its_own(weights.shape[0], rows.shape[0]):
        own = weights[rows]
        return torch.einsum("bevl,bvlk->bekv", windows, own[:, :, 1:]) + own[:, None, :, 0].transpose(2, 3)
    found = values.new_empty(len(values), len(ends), weights.shape[3], values.shape[2])
    for row in range(len(weights)):
        mine = rows == row
        part = torch.einsum("bevl,vlk->bekv", windows[mine], weights[row, :, 1:])
        found[mine] = part + weights[row, :, 0].t()
    return found


def brings_its_own(series: int, rows: int) -> bool:
    """Whether a matrix for each of the rows costs less than to gather those of each series: there are few of one."""
    return series * 4 > rows
