"""A trained forecaster's quantiles of what follows a series: all steps at once, or one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recur.models import Forecaster
from recur.models.stack import each_part
from recur.series import Clock, Scale, SeriesTable, known_ahead
from recur.series.table import Floats

PATHS = 200
"""How many futures an iterated forecast draws."""


class Settings(NamedTuple):
    """What a forecast is made with, beside the model."""

    horizon: int
    season: int
    strategy: str
    transform: str
    seed: int
    clock: Clock | None
    """The time, where it is an input."""


@torch.no_grad()
def forecasts(model: Forecaster, table: SeriesTable, ends: Sequence[int], n: int, settings: Settings) -> list[Floats]:
    """Quantiles (horizon, series, Q) of what follows the first `end` values, for each end; all is scaled by the first
    n rows."""
    device, last = model.output.bias.device, max(ends)
    scale = Scale.of(table, n, settings.transform)
    known = torch.tensor(known_ahead(table, n, settings.season, settings.horizon, settings.clock)).float().to(device)
    values = torch.tensor(scale.forward(table.values[:last])).float().t().contiguous().to(device)
    if settings.strategy == "direct":
        # A network reads forward only, so that one pass has the forecasts of every origin.
        found = model(values, known[: last + settings.horizon].expand(len(values), -1, -1)).sort(-1).values
        drawn = [found[:, end - 1 - model.first].permute(2, 1, 0) for end in ends]
    else:
        drawn = [_iterated(model, values[:, :end], known, settings) for end in ends]
    return [scale.back(part.cpu().double().numpy()).transpose(1, 2, 0) for part in drawn]


def _iterated(model: Forecaster, values: Tensor, known: Tensor, settings: Settings) -> Tensor:
    """(Q, horizon, series): one step at a time, for many futures at once; each draws its next value from the quantiles
    of the last."""
    (series, end), device = values.shape, values.device
    draw = torch.Generator().manual_seed(settings.seed)
    found, state = model.carry(values, known[: end + 1].expand(series, -1, -1))
    paths = values.repeat_interleave(PATHS, 0)
    if state is not None:
        state = each_part(state, lambda part: part.repeat_interleave(PATHS, 0))
    quantiles = found[:, -1, 0].repeat_interleave(PATHS, 0)
    steps = []
    for j in range(1, settings.horizon + 1):
        u = torch.rand(len(paths), generator=draw).to(device)
        value = _between(quantiles.sort(-1).values, model.quantiles, u)
        steps.append(value.view(series, PATHS))
        if j < settings.horizon:
            ahead = known[end + j - 1 : end + j + 1].expand(len(paths), -1, -1)
            found, state = model.carry(value[:, None], ahead, state, paths)
            paths, quantiles = torch.cat([paths, value[:, None]], dim=1), found[:, -1, 0]
    return torch.stack(steps).quantile(torch.tensor(model.quantiles, device=device), dim=-1)


def _between(quantiles: Tensor, at: Sequence[float], u: Tensor) -> Tensor:
    """The value at probability u of each row: straight lines between quantiles, and on beyond the outermost."""
    if len(at) == 1:
        return quantiles[:, 0]
    q = torch.tensor(at, device=u.device)
    k = torch.searchsorted(q, u).clamp(1, len(at) - 1)
    low, high = (quantiles.gather(1, (k - side)[:, None])[:, 0] for side in (1, 0))
    return low + (u - q[k - 1]) / (q[k] - q[k - 1]) * (high - low)
