"""A trained forecaster's quantiles of what follows a series: all steps at once, or one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from recur.models import Forecaster
from recur.series import Scale, SeriesTable, known_ahead
from recur.train.config import Config

Floats = np.ndarray[Any, np.dtype[np.float64]]

PATHS = 200
"""How many futures an iterated forecast draws."""


@torch.no_grad()
def forecast(model: Forecaster, table: SeriesTable, end: int, n: int, config: Config) -> Floats:
    """Quantiles (horizon, series, Q) of what follows the first `end` values; all is scaled by the first n rows."""
    device, horizon = model.output.bias.device, config.horizon
    scale = Scale.of(table, n, config.transform)
    known = torch.tensor(known_ahead(table, n, config.season, horizon)[: end + horizon]).float().to(device)
    values = torch.tensor(scale.forward(table.values[:end])).float().t().contiguous().to(device)
    series = len(values)
    if config.strategy == "direct":
        found = model(values, known.expand(series, -1, -1))[:, -1].sort(-1).values
        return scale.back(found.permute(1, 2, 0).cpu().double().numpy()).swapaxes(1, 2)
    # One step at a time, for many futures at once: each draws its next value from the quantiles of the last.
    draw = torch.Generator().manual_seed(config.seed)
    found, state = model.carry(values, known[: end + 1].expand(series, -1, -1))
    paths = values.repeat_interleave(PATHS, 0)
    if state is not None:
        cell = model.recurrent.cell  # type: ignore[union-attr]
        state = tuple(cell.state([part.repeat_interleave(PATHS, 0) for part in layer]) for layer in state)
    quantiles = found[:, -1, 0].repeat_interleave(PATHS, 0)
    steps = []
    for j in range(1, horizon + 1):
        u = torch.rand(len(paths), generator=draw).to(device)
        value = _between(quantiles.sort(-1).values, model.quantiles, u)
        steps.append(value.view(series, PATHS))
        if j < horizon:
            ahead = known[end + j - 1 : end + j + 1].expand(len(paths), -1, -1)
            found, state = model.carry(value[:, None], ahead, state, paths)
            paths, quantiles = torch.cat([paths, value[:, None]], dim=1), found[:, -1, 0]
    drawn = torch.stack(steps).quantile(torch.tensor(model.quantiles, device=device), dim=-1)  # (Q, horizon, series)
    return scale.back(drawn.cpu().double().numpy()).transpose(1, 2, 0)


def _between(quantiles: torch.Tensor, at: Sequence[float], u: torch.Tensor) -> torch.Tensor:
    """The value at probability u of each row: straight lines between quantiles, and on beyond the outermost."""
    if len(at) == 1:
        return quantiles[:, 0]
    q = torch.tensor(at, device=u.device)
    k = torch.searchsorted(q, u).clamp(1, len(at) - 1)
    low, high = (quantiles.gather(1, (k - side)[:, None])[:, 0] for side in (1, 0))
    return low + (u - q[k - 1]) / (q[k] - q[k - 1]) * (high - low)
