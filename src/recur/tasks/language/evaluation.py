"""Evaluation of language models: every token counts, and the state is carried through the whole text."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.data.text.stream import Floats, Ids
from recur.models import LanguageModel, State
from recur.models.layers import map_state
from recur.nn import Recurrent

WINDOW = 512
"""Tokens per call of the model in `log_probabilities`."""

LANES = {"cpu": 16, "cuda": 64}
"""Number of lanes by device: parts of the text that are read in parallel, so that matrix products have several rows."""


@torch.no_grad()
def mean_loss(
    model: LanguageModel,
    ids: Ids,
    first: int,
    progress: Callable[[int], object] | None = None,
    at: int = 0,
) -> float:
    """Return the mean negative log-probability of all ids, with the state carried through all of them.

    `at` is the position of the first id in a longer text, for models that read the time.
    """
    was_training = model.training
    model.eval()
    device = model.device
    y = torch.from_numpy(np.asarray(ids, np.int64).copy()).to(device)
    x = torch.cat([y.new_tensor([first]), y[:-1]])
    total = total_loss(model, x, y, LANES.get(device.type, 1), progress, at)
    model.train(was_training)
    return total / len(ids)


@torch.no_grad()
def log_probabilities(model: LanguageModel, ids: Ids, first: int) -> Floats:
    """Return log P of each id given the ids before it, (N,), with the state carried through all of them.

    The model must be able to predict every id: special tokens such as <pad> have no probability.
    """
    was_training = model.training
    model.eval()
    targets = torch.from_numpy(np.asarray(ids, np.int64).copy()).to(model.device)
    inputs = torch.cat([targets.new_tensor([first]), targets[:-1]])
    state, found = None, []
    for at in range(0, len(ids), WINDOW):
        predicted = model(inputs[None, at : at + WINDOW], state)
        state = predicted.state
        logp = predicted.logits[0].double().log_softmax(-1)
        found.append(logp.gather(1, targets[at : at + WINDOW, None])[:, 0])
    model.train(was_training)
    values: Floats = torch.cat(found).cpu().numpy()
    return values


@torch.no_grad()
def free_running_gap(
    model: LanguageModel, ids: Ids, lead: int = 32, steps: int = 16, rows: int = 32, at: int = 0
) -> float:
    """Return the mean loss with free running minus the mean loss with teacher forcing.

    The model reads `lead` tokens of the text, then `steps` tokens: with free running its own most likely tokens, with
    teacher forcing those of the text. NaN for a text that is too short.
    """
    rows = min(rows, len(ids) - lead - steps)
    if rows < 1:
        return math.nan
    was_training = model.training
    model.eval()
    starts = np.linspace(0, len(ids) - lead - steps - 1, rows).astype(np.int64)
    table = np.stack([np.asarray(ids[k : k + lead + steps + 1], np.int64) for k in starts])
    place = torch.from_numpy(at + starts).to(model.device)
    text = torch.from_numpy(table).to(model.device)
    forced = model(text[:, :-1], start=place).logits[:, lead:]
    predicted = model(text[:, : lead + 1], start=place)
    logits, state, own = predicted.logits[:, -1], predicted.state, [predicted.logits[:, -1]]
    for _ in range(steps - 1):
        logits, state = model.step(logits.argmax(-1), state)
        own.append(logits)
    targets = text[:, lead + 1 :].flatten()
    losses = [float(cross_entropy(each.flatten(0, 1), targets)) for each in (torch.stack(own, dim=1), forced)]
    model.train(was_training)
    return losses[0] - losses[1]


WARM_UP = 512
"""Tokens before a lane that are read first, to estimate the state at the start of the lane."""

LANE_WINDOW = {"cpu": 4096, "cuda": 1 << 16}
"""Tokens of all lanes per call of the model: their outputs are in memory together."""

ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-9}
"""Largest difference of two equal states, relative to their largest entry. Sums in another order differ by less."""

LOW_PRECISION_ULPS = 16.0
"""The same limit for TF32, bfloat16 and float16, in units of the last bit."""

MAX_REPEATS = 2
"""How often lanes with a wrong start are read again, before the rest of the text is read as one lane."""


@torch.no_grad()
def total_loss(
    model: LanguageModel,
    x: Tensor,
    y: Tensor,
    lanes: int,
    progress: Callable[[int], object] | None = None,
    at: int = 0,
) -> float:
    """Return Σ −log P(y_t | x_1 … x_t) over a text x, y (N,) that starts at position `at` of a longer text.

    The text is split into lanes, which are read in parallel. The start state of a lane is estimated from the tokens
    before it. A lane whose start differs from the end of the lane before it is read again from that end, so that the
    loss is that of one pass. A network with a long memory needs too many repeats; the rest is then read as one lane.
    """
    net = model.recurrent
    if model.clock is not None or not isinstance(net, Recurrent):
        lanes = 1  # a model that reads the time needs the position of each lane
    lanes = max(1, min(lanes, len(x) // (2 * WARM_UP)))
    steps = len(x) // lanes
    rows, targets = (part[: lanes * steps].view(lanes, steps) for part in (x, y))
    if lanes == 1:
        ends, losses = _read(model, rows, None, targets, progress, at)
    else:
        assert isinstance(net, Recurrent)
        before, _ = _read(model, rows[:-1, -WARM_UP:], None, None)
        first = net.starting_state(model.embedding.vectors(rows[:1, 0]))
        starts = _concatenate(first, before)
        ends, losses = _read(model, rows, starts, targets, progress)
        for _ in range(MAX_REPEATS):
            wrong = _wrong_starts(ends, starts)
            if not len(wrong):
                break
            starts = _replace_rows(starts, _select_rows(ends, wrong - 1), wrong)
            again, losses[wrong] = _read(model, rows[wrong], _select_rows(starts, wrong), targets[wrong])
            ends = _replace_rows(ends, again, wrong)
        wrong = _wrong_starts(ends, starts)
        if len(wrong):
            k = int(wrong[0])
            rest = rows[k:].reshape(1, -1), _select_rows(ends, torch.tensor([k - 1])), targets[k:].reshape(1, -1)
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
    """Return the state after rows (B, T), and the sum of the losses of each row (B,)."""
    window = max(1, LANE_WINDOW[rows.device.type] // len(rows))
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


def _concatenate(first: State, rest: State) -> State:
    """Return a state with the row of `first`, followed by the rows of `rest`."""
    pairs = zip(first, rest, strict=True)
    return tuple(tuple(torch.cat([a.to(b.dtype), b]) for a, b in zip(*pair, strict=True)) for pair in pairs)


def _select_rows(state: State, which: Tensor) -> State:
    return map_state(state, lambda part: part[which])


def _replace_rows(state: State, rows: State, which: Tensor) -> State:
    """Return a copy of a state whose rows `which` are replaced."""
    pairs = zip(state, rows, strict=True)
    return tuple(tuple(a.index_copy(0, which, b) for a, b in zip(*pair, strict=True)) for pair in pairs)


def _wrong_starts(ends: State, starts: State) -> Tensor:
    """Return the lanes whose start state differs from the end state of the lane before them."""
    off = torch.zeros(len(starts[0][0]) - 1, dtype=torch.bool, device=starts[0][0].device)
    for layer, begun in zip(ends, starts, strict=True):
        for end, start in zip(layer, begun, strict=True):
            bound = _rounding(end) * end.abs().amax(dim=1).clamp(min=1.0)[:-1, None]
            off |= ((end[:-1] - start[1:]).abs() > bound).any(dim=1)
    return off.nonzero()[:, 0] + 1


def _rounding(state: Tensor) -> float:
    """Return the relative rounding error of a state, by its dtype and the precision of matrix products."""
    if state.dtype in (torch.bfloat16, torch.float16):
        return LOW_PRECISION_ULPS * torch.finfo(state.dtype).eps
    if state.is_cuda and torch._C._get_fp32_precision_getter("cuda", "rnn") == "tf32":
        return LOW_PRECISION_ULPS * torch.finfo(torch.float16).eps  # TF32 has as many mantissa bits
    return ROUNDING[state.dtype]
