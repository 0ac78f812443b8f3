"""Is the text stationary? The book's check: give the time t as an input, and see whether it helps.

Sharing one set of weights over time assumes that, given the past, the next step has the same distribution at every t.
Where that holds, t as an input gains nothing. So a readout is fitted twice, on blocks of the text, and measured on the
blocks between them:

    logits + b                       the control: the gain of a new bias alone
    logits + b + t p + t² q          with time as an input

The gain of t is the difference of the two losses, on blocks that neither was fitted to.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.subject import Subject
from recur.i18n import said

GAIN = 0.02
"""Nats a token from which the error is said to depend on t."""
BLOCKS = 20


def stationarity(subject: Subject) -> Measurement:
    x, y = subject.rows(1, len(subject.inputs))
    reads_time = subject.language is not None and subject.language.options.time_input
    with torch.no_grad():
        start = torch.tensor([subject.start], device=x.device) if reads_time else None
        logits = (subject.model(x, start=start) if reads_time else subject.model(x)).logits[0].double()
    return time_as_input(logits.cpu(), y[0].cpu())


def time_as_input(logits: Tensor, y: Tensor) -> Measurement:
    """The gain of t for logits (T, K) of a text y (T,)."""
    T = len(logits)
    t = torch.linspace(-1, 1, T, dtype=torch.float64)
    block = torch.arange(T) * BLOCKS // T
    fitted, held_out = block % 2 == 0, block % 2 == 1
    one = torch.ones_like(t)
    losses = {}
    for name, inputs in {"without": one[:, None], "with": torch.stack([one, t, t * t], 1)}.items():
        weight = _fit(logits[fitted], y[fitted], inputs[fitted])
        losses[name] = float(cross_entropy(logits[held_out] + inputs[held_out] @ weight, y[held_out]))
    error = cross_entropy(logits, y, reduction="none")
    by_time = [float(error[block == k].mean()) for k in range(BLOCKS)]
    gain = losses["without"] - losses["with"]
    detail = said(
        "knowing the place t in the text gains {gain:.3f} nats a token on blocks held out ({without:.3f} → "
        "{with_:.3f})",
        gain=gain, without=losses["without"], with_=losses["with"],
    )  # fmt: skip
    if gain > GAIN:
        verdict = said("the error depends on the place in the text: {detail}", detail=detail)
        finding = Finding("stationarity", Level.WARNING, gain, GAIN, verdict)
    else:
        verdict = said("the error does not depend on the place in the text: {detail}", detail=detail)
        finding = Finding("stationarity", Level.OK, gain, GAIN, verdict)
    return Measurement(finding, {"loss": losses, "by_time": by_time})


def _fit(logits: Tensor, y: Tensor, inputs: Tensor) -> Tensor:
    """The convex fit, with a little weight decay so that the weights of rare tokens stay bounded."""
    weight = torch.zeros(inputs.shape[1], logits.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=30, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(logits + inputs @ weight, y) + 1e-2 * weight.square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    return weight.detach()
