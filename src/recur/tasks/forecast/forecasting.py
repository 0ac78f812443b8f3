"""A trained forecaster's quantiles of what follows rows: all origins in one pass, or in batches of windows; all steps
at once, or one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from recur.models import Forecaster
from recur.models.forecaster import SeriesBatch
from recur.models.stack import State, map_state
from recur.tasks.forecast.rows import Rows

PATHS = 200
"""How many futures an iterated forecast draws."""

AT_ONCE = 1 << 23
"""About how many numbers a batch may make."""


@torch.no_grad()
def forecast(
    model: Forecaster, rows: Rows, which: np.ndarray, ends: np.ndarray, horizon: int, strategy: str, seed: int
) -> np.ndarray:
    """Quantiles (N, k, V, Q), scaled as rows are, of what follows steps `ends` (N,) of the rows `which` (N,)."""
    rows = rows.on(model.device)
    found = np.empty((len(which), horizon, model.sizes.variables, len(model.quantiles)), np.float32)
    order = np.argsort(which, kind="stable") if not model.lags else np.arange(len(which))
    done = 0
    if strategy == "iterated":
        made = _iterated(model, rows, which[order], ends[order], horizon, seed)
    elif model.lags:
        made = _windows(model, rows, which, ends)
    else:
        made = _states(model, rows, which[order], ends[order])
    for part in made:
        found[order[done : done + len(part)]] = part.float().cpu().numpy()
        done += len(part)
    return found


def _quantiles(model: Forecaster, rows: Rows, which: Tensor, parameters: Tensor) -> Tensor:
    """(N, k, V, Q) of parameters (N, k, V, P)."""
    unit = rows.unit[which][:, None].expand(parameters.shape[:-1])
    return model.distribution.quantiles(parameters, unit)


def _batches(which: np.ndarray, ends: np.ndarray, each: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of a row and a step, as many at once as memory holds where each makes so many numbers."""
    at_once = max(AT_ONCE // max(each, 1), 1)
    for begin in range(0, len(which), at_once):
        part = slice(begin, begin + at_once)
        yield torch.from_numpy(which[part]).to(device), torch.from_numpy(ends[part]).to(device)


def _windows(model: Forecaster, rows: Rows, which: np.ndarray, ends: np.ndarray) -> Iterator[Tensor]:
    L, k, o = model.lags, model.horizon, model.options
    wide = k * (model.sizes.variables * model.distribution.size + model.sizes.known)
    segments = (L + k) // (o.segment or L) + 1
    each = wide + L * (model.sizes.known + 2) + segments * o.hidden * o.layers * 4
    last = torch.tensor([L - 1], device=model.device)
    for row, end in _batches(which, ends, each, model.device):
        yield _quantiles(model, rows, row, model(rows.seen(row, end, L, k), last)[:, 0])


def _states(model: Forecaster, rows: Rows, which: np.ndarray, ends: np.ndarray) -> Iterator[Tensor]:
    """Rows are read once, from their beginning: a network reads forward only, so that one pass serves every origin."""
    k, zero = model.horizon, torch.zeros(1, dtype=torch.long, device=model.device)
    each = k * (model.sizes.variables * model.distribution.size + 2 * model.sizes.known)
    reach = max(model.season, 0 if rows.linear is None else rows.linear.shape[2])
    for group, mine in _groups(which, ends, model.options.hidden * model.options.layers):
        last = int(ends[mine].max())
        read = torch.from_numpy(group).to(model.device)
        states, _ = model.states(rows.seen(read, torch.full_like(read, last), last + 1, k))
        for row, end in _batches(which[mine], ends[mine], each, model.device):
            near = rows.seen(row, end, reach, k)
            own = states[torch.searchsorted(read, row), end][:, None]
            raw = model.from_states(own, near.known[:, reach - 1 :], zero)
            yield _quantiles(model, rows, row, model.place(raw, model.base(near, zero + reach - 1))[:, 0])


def _groups(which: np.ndarray, ends: np.ndarray, hidden: int) -> Iterator[tuple[np.ndarray, slice]]:
    """Rows that are read together, and which of the pairs, sorted by row, are theirs."""
    rows, firsts = np.unique(which, return_index=True)
    bounds = [*firsts, len(which)]
    longest = np.maximum.reduceat(ends, firsts) + 1
    begin = 0
    while begin < len(rows):
        end = begin + 1
        while end < len(rows) and longest[begin : end + 1].max() * (end + 1 - begin) * hidden <= 4 * AT_ONCE:
            end += 1
        yield rows[begin:end], slice(int(bounds[begin]), int(bounds[end]))
        begin = end


# One step after the other ---------------------------------------------------------------------------------------------


def _iterated(
    model: Forecaster, rows: Rows, which: np.ndarray, ends: np.ndarray, horizon: int, seed: int
) -> Iterator[Tensor]:
    """One step at a time, for many futures at once; each draws its next value from the distribution of the last."""
    for row, end in zip(which, ends, strict=True):
        draw = torch.Generator().manual_seed(seed)
        at = torch.tensor([int(end)], device=model.device)
        number = torch.tensor([int(row)], device=model.device)
        back = int(end) + 1 if not model.lags else rows.front
        whole = rows.seen(number, at, back, horizon)
        yield _paths(model, rows, whole, horizon, draw)[None]


def _paths(model: Forecaster, rows: Rows, whole: SeriesBatch, horizon: int, draw: torch.Generator) -> Tensor:
    """(k, V, Q)"""
    T = whole.values.shape[1]

    def repeated(part: Tensor) -> Tensor:
        return part.repeat_interleave(PATHS, 0)

    unit = rows.unit[whole.row].expand(PATHS, -1)
    state: State | None = None
    now = whole._replace(known=whole.known[:, : T + 1])
    found = model(now, torch.tensor([T - 1], device=model.device))[:, 0, 0]  # (1, V, P): of the next step
    if not model.lags:
        _, state = model.states(now)
        state = map_state(state, repeated)
    parameters, values = repeated(found), repeated(whole.values)
    known, past, channel, row = (repeated(part) for part in (whole.known, whole.past[:, -1:], whole.channel, whole.row))
    steps = []
    for j in range(horizon):
        value = model.distribution.draw(parameters, unit, draw)[:, None]  # (paths, 1, V)
        steps.append(value)
        if j + 1 == horizon:
            break
        at = T + j  # where this value stands
        if state is not None:
            one = SeriesBatch(value, known[:, at : at + 2], past, channel, row, whole.linear)
            found, state = model.carry(one, state, values)
            values = torch.cat([values, value], dim=1)
        else:
            values = torch.cat([values, value], dim=1)
            seen = SeriesBatch(values, known[:, : at + 2], past.expand(-1, at + 1, -1), channel, row, whole.linear)
            found = model(seen, torch.tensor([at], device=model.device))
        parameters = found[:, -1, 0]
    levels = torch.tensor(model.quantiles, device=model.device)
    return torch.cat(steps, dim=1).quantile(levels, dim=0).permute(1, 2, 0)
