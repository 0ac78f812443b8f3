"""How well a model predicts a text: every token counted, the state carried over all of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from recur.models import LanguageModel
from recur.text.tokens import Ids

WINDOW = 512


@torch.no_grad()
def mean_loss(
    model: LanguageModel, ids: Ids, first: int, lanes: int = 1, heard: Callable[[int], object] | None = None
) -> float:
    """Mean negative log-probability of all ids. With more than one lane the text is cut into as many pieces, each
    entered without its past: faster, and a little pessimistic."""
    was_training = model.training
    model.eval()
    device = model.bias.device
    total = 0.0
    lanes = max(1, min(lanes, len(ids)))
    steps, rest = divmod(len(ids), lanes)
    before = np.concatenate([[first], ids[:-1]]).astype(np.int64)
    after = np.asarray(ids, np.int64)
    pieces = [(0, steps, lanes)] + ([(steps * lanes, rest, 1)] if rest else [])
    for begin, length, rows in pieces:
        x = torch.from_numpy(before[begin : begin + rows * length].reshape(rows, length))
        y = torch.from_numpy(after[begin : begin + rows * length].reshape(rows, length))
        state = None
        losses = []
        for at in range(0, length, WINDOW):
            predicted = model(x[:, at : at + WINDOW].to(device), state)
            state = predicted.state
            target = y[:, at : at + WINDOW].to(device)
            losses.append(model.loss(predicted, target).double() * target.numel())
            if heard is not None:
                heard(target.numel())
        total += float(torch.stack(losses).sum())
    model.train(was_training)
    return total / len(ids)


def perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf
