"""A text measured in lanes side by side, as if it had been read from its start to its end.

A lane needs the state that the text before it leaves, and a network forgets: what it read some hundred tokens ago has
no bit left in its state. So each lane enters with what the last `LEAD` tokens before it leave behind, and is read; then
the state that a lane ends with is compared with the one that the next lane began with. Where they are equal to
rounding, that lane began exactly where reading on would have; where they are not, it is read again from the right one.
By induction from the first lane, all are exact in the end, be the network one that remembers forever.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from recur.models import LanguageModel, State
from recur.models.stack import map_state
from recur.nn import Recurrent

LEAD = 512
"""Tokens before a lane that it is entered with."""

WINDOW = {"cpu": 4096, "cuda": 1 << 16}
"""Tokens of all lanes at a time: their outputs are in memory together."""

ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-9}
"""How far entries of two states may be apart that are one, beside the largest: other orders of sums differ by less."""

SIXTEEN = 16.0
"""… and in so many units of their last bit where products have fewer: TF32, bfloat16 and float16."""

PASSES = 2
"""How often lanes are read again; where that is not enough the network remembers for long, and the rest is read on from
the first that is not right."""


@torch.no_grad()
def total_loss(
    model: LanguageModel,
    x: Tensor,
    y: Tensor,
    lanes: int,
    progress: Callable[[int], object] | None = None,
    at: int = 0,
) -> float:
    """Σ −log P(y_t | x_1 … x_t) over a text x, y (N,) on the model's device; it begins `at` there in a longer one."""
    net = model.recurrent
    if model.clock is not None or not isinstance(net, Recurrent):
        lanes = 1  # where lanes stand in time is part of their state
    lanes = max(1, min(lanes, len(x) // (2 * LEAD)))
    steps = len(x) // lanes
    rows, targets = (part[: lanes * steps].view(lanes, steps) for part in (x, y))
    if lanes == 1:
        ends, losses = _read(model, rows, None, targets, progress, at)
    else:
        assert isinstance(net, Recurrent)
        before, _ = _read(model, rows[:-1, -LEAD:], None, None)
        first = net.starting_state(model.embedding.vectors(rows[:1, 0]))
        starts = _joined(first, before)
        ends, losses = _read(model, rows, starts, targets, progress)
        for _ in range(PASSES):
            wrong = _differing(ends, starts)
            if not len(wrong):
                break
            starts = _put(starts, _picked(ends, wrong - 1), wrong)
            again, losses[wrong] = _read(model, rows[wrong], _picked(starts, wrong), targets[wrong])
            ends = _put(ends, again, wrong)
        wrong = _differing(ends, starts)
        if len(wrong):
            k = int(wrong[0])
            rest = rows[k:].reshape(1, -1), _picked(ends, torch.tensor([k - 1])), targets[k:].reshape(1, -1)
            ends, found = _read(model, *rest)
            losses[k:] = found / (lanes - k)
    total = losses.sum()
    if lanes * steps < len(x):
        last = map_state(ends, lambda part: part[-1:])
        total = total + _read(model, x[None, lanes * steps :], last, y[None, lanes * steps :], progress)[1].sum()
    return float(total)


def _read(
    model: LanguageModel,
    rows: Tensor,
    state: State | None,
    targets: Tensor | None,
    progress: Callable[[int], object] | None = None,
    at: int = 0,
) -> tuple[State, Tensor]:
    """The state that rows (B, T) leave, and the sum of each row's losses (B,)."""
    window = max(1, WINDOW[rows.device.type] // len(rows))
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for begin in range(0, rows.shape[1], window):
        start = torch.full((len(rows),), at + begin, device=rows.device) if model.clock is not None else None
        predicted = model(rows[:, begin : begin + window], state, start=start)
        state = predicted.state
        if targets is not None:
            y = targets[:, begin : begin + window]
            total += model.losses(predicted, y).double().sum(1)
            if progress is not None:
                progress(y.numel())
    assert state is not None
    return state, total


def _joined(first: State, rest: State) -> State:
    """The state of one row above those of others."""
    pairs = zip(first, rest, strict=True)
    return tuple(tuple(torch.cat([a.to(b.dtype), b]) for a, b in zip(*pair, strict=True)) for pair in pairs)


def _picked(state: State, which: Tensor) -> State:
    return map_state(state, lambda part: part[which])


def _put(state: State, rows: State, which: Tensor) -> State:
    """With other rows."""
    pairs = zip(state, rows, strict=True)
    return tuple(tuple(a.index_copy(0, which, b) for a, b in zip(*pair, strict=True)) for pair in pairs)


def _differing(ends: State, starts: State) -> Tensor:
    """The lanes that did not begin where the one before them ended."""
    off = torch.zeros(len(starts[0][0]) - 1, dtype=torch.bool, device=starts[0][0].device)
    for layer, begun in zip(ends, starts, strict=True):
        for end, start in zip(layer, begun, strict=True):
            bound = _rounding(end) * end.abs().amax(dim=1).clamp(min=1.0)[:-1, None]
            off |= ((end[:-1] - start[1:]).abs() > bound).any(dim=1)
    return off.nonzero()[:, 0] + 1


def _rounding(state: Tensor) -> float:
    if state.dtype in (torch.bfloat16, torch.float16):
        return SIXTEEN * torch.finfo(state.dtype).eps
    if state.is_cuda and torch._C._get_fp32_precision_getter("cuda", "rnn") == "tf32":
        return SIXTEEN * torch.finfo(torch.float16).eps  # which has as many bits
    return ROUNDING[state.dtype]
