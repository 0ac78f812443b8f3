"""Does the error depend on t? The check that the book describes: hand the time t in, and see whether it helps.

Sharing one set of weights over time supposes that, given the past, the next step follows the same law at every t.
Where that holds, knowing t brings nothing. So a readout is fitted twice, on blocks of the text, and measured on the
blocks between them:

    logits + b                       the control: whatever a new bias alone repairs
    logits + b + t u + t² v          with time as an input

What t is worth is the difference of the two losses, on blocks that neither has seen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.probes.finding import Finding, Level, Seen
from recur.probes.subject import Subject

WORTH = 0.02
"""Nats a token from which t is said to matter."""
BLOCKS = 20


def stationarity(subject: Subject) -> Seen:
    x, y = subject.rows(1, len(subject.inputs))
    with torch.no_grad():
        logits = subject.model(x).logits[0].double()
    return time_as_input(logits, y[0])


def time_as_input(logits: Tensor, y: Tensor) -> Seen:
    """What t is worth for logits (T, V) of a text y (T,)."""
    T, V = logits.shape
    t = torch.linspace(-1, 1, T, dtype=torch.float64)
    block = torch.arange(T) * BLOCKS // T
    seen, kept = block % 2 == 0, block % 2 == 1
    losses = {}
    for name, inputs in {"without": t[:, None] * 0 + 1, "with": torch.stack([torch.ones_like(t), t, t * t], 1)}.items():
        weight = _fitted(logits[seen], y[seen], inputs[seen], V)
        losses[name] = float(cross_entropy(logits[kept] + inputs[kept] @ weight, y[kept]))
    error = cross_entropy(logits, y, reduction="none")
    by_time = torch.stack([error[block == k].mean() for k in range(BLOCKS)]).tolist()
    worth = losses["without"] - losses["with"]
    numbers: dict[str, Any] = {"loss": losses, "by_time": by_time}
    fall = f"{losses['without']:.3f} → {losses['with']:.3f}"
    said = f"knowing t is worth {worth:.3f} nats a token on text not fitted ({fall})"
    if worth > WORTH:
        advice = "t as an input, or sequences cut where the text changes, with a reset"
        finding = Finding("stationarity", Level.CONCERN, worth, WORTH, f"the error depends on t: {said}", advice)
    else:
        finding = Finding("stationarity", Level.SOUND, worth, WORTH, f"the error does not depend on t: {said}")
    return Seen(finding, numbers)


def _fitted(logits: Tensor, y: Tensor, inputs: Tensor, V: int) -> Tensor:
    """The convex fit, held back by a little weight decay so that rare tokens do not run away."""
    weight = torch.zeros(inputs.shape[1], V, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=30, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(logits + inputs @ weight, y) + 1e-2 * weight.square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    return weight.detach()
