"""How well a model predicts a text: every token counted, the state carried over all of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from recur.data.text.stream import Floats, Ids
from recur.models import LanguageModel
from recur.tasks.language.lanes import total_loss

WINDOW = 512

LANES = {"cpu": 16, "cuda": 64}
"""Side by side, so that products are of several rows."""


@torch.no_grad()
def mean_loss(
    model: LanguageModel,
    ids: Ids,
    first: int,
    progress: Callable[[int], object] | None = None,
    at: int = 0,
) -> float:
    """Mean negative log-probability of all ids, the state carried through all of them: in lanes, which end where the
    next begin (lanes.py). `at` is where in a longer text they begin, for models that read the time."""
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
    """log P of each of the ids given those before it, (N,), the state carried through all of them."""
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
    """How much is lost when the model reads its own likeliest tokens instead of the text's: the mean loss of `steps`
    tokens behind `lead` tokens of the text, without a teacher minus with one. Not a number for a text too short."""
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
