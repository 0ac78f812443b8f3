"""How much of what stands before is used.

loss against context length   each token predicted from its last n tokens alone, the state fresh
loss by position              along a window, entered with a fresh state and with the one carried to it
saliency                      of one prediction: ‖∂ log p / ∂x_{t−k}‖, x the network's input for an earlier token
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.probes.finding import Finding, Level, Seen
from recur.probes.subject import Subject

ENOUGH = 0.02
"""Nats: a context whose loss is this near the best is all that is used."""
LITTLE = 4
"""A model that uses fewer tokens is no better than an n-gram."""


@torch.no_grad()
def losses(subject: Subject) -> Tensor:
    """(N,): −log p of each token of the text, the state carried through all of it."""
    x, y = subject.rows(1, len(subject.inputs))
    return cross_entropy(subject.model(x).logits[0], y[0], reduction="none").double()


@torch.no_grad()
def by_context(subject: Subject, lengths: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128), places: int = 96) -> Seen:
    """The loss of the same tokens, seen with more and more of what stands before them."""
    N = len(subject.inputs)
    lengths = tuple(n for n in lengths if n <= N // 2) or (1,)
    at = torch.linspace(max(lengths), N - 1, min(places, N - max(lengths))).long()
    found = {}
    for n in lengths:
        x = subject.inputs[at[:, None] + torch.arange(-n, 0)].long()
        found[n] = float(cross_entropy(subject.model(x).logits[:, -1], subject.inputs[at].long()))
    numbers = {"lengths": list(found), "losses": list(found.values())}
    best = min(found.values())
    used = next(n for n, loss in found.items() if loss <= best + ENOUGH)
    longest = max(lengths)
    gain = found[1] - best
    said = f"{used} of {longest} tokens of context bring all there is to gain, {gain:.2f} nats over one token"
    if used < LITTLE and longest > 8:
        advice = "a longer window, a larger network, longer training; a gated cell"
        finding = Finding("context", Level.CONCERN, used, LITTLE, f"hardly any context is used: {said}", advice)
    else:
        finding = Finding("context", Level.SOUND, used, LITTLE, f"context is used: {said}")
    return Seen(finding, numbers)


@torch.no_grad()
def by_position(subject: Subject, length: int = 64) -> Seen:
    """Loss by position in a window, the state fresh at its start, or carried there through the text."""
    N = len(subject.inputs)
    length = max(2, min(length, N // 4))
    rows = N // length
    x, y = subject.rows(1, rows * length)
    whole = cross_entropy(subject.model(x).logits[0], y[0], reduction="none")
    cut_x, cut_y = x.view(rows, length), y.view(rows, length)
    fresh = cross_entropy(subject.model(cut_x).logits.flatten(0, 1), cut_y.flatten(), reduction="none")
    carried = whole.view(rows, length).mean(dim=0)
    alone = fresh.view(rows, length).mean(dim=0)
    numbers = {"fresh": alone.tolist(), "carried": carried.tolist(), "windows": rows}
    gain = float(alone.mean() - carried.mean())
    tail = length // 2
    late = float(alone[tail:].mean() - carried[tail:].mean())
    said = f"a carried state is worth {gain:.3f} nats a token in windows of {length}, {late:.3f} in their second half"
    if gain < -0.05:
        advice = "resets at sequence starts; --partition sequential in training, so that it meets carried states"
        finding = Finding("position", Level.CONCERN, gain, -0.05, f"carrying the state does harm: {said}", advice)
    else:
        finding = Finding("position", Level.SOUND, gain, -0.05, said)
    return Seen(finding, numbers)


def saliency(subject: Subject, at: int = -1, back: int = 60) -> Seen:
    """Which earlier tokens the prediction of token `at` of the text hangs on, by the norm of the gradient."""
    N = len(subject.inputs)
    end = at % N
    begin = max(0, end - back)
    x, y = subject.rows(1, N)
    x, y = x[:, begin : end + 1], y[:, begin : end + 1]
    caught: list[Tensor] = []

    def catch(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        caught.append(args[0].detach().requires_grad_())
        return (caught[-1], *args[1:])

    handle = subject.net.register_forward_pre_hook(catch)
    try:
        logits = subject.model(x).logits[0, -1]
    finally:
        handle.remove()
    chance = logits.log_softmax(-1)[y[0, -1]]
    (grad,) = torch.autograd.grad(chance, caught[0])
    chance = chance.detach()
    norms = torch.linalg.vector_norm(grad[0].double(), dim=-1)
    share = norms / norms.sum().clamp_min(1e-300)
    lags = torch.arange(len(share) - 1, -1, -1, dtype=torch.float64)
    reach = float((share * lags).sum())
    names = subject.vocab.tokens if subject.vocab is not None else None
    show = [names[k] if names else str(k) for k in x[0].tolist()]
    numbers = {
        "tokens": show,
        "share": share.tolist(),
        "predicted": names[int(y[0, -1])] if names else str(int(y[0, -1])),
        "probability": float(chance.exp()),
    }
    verdict = f"one prediction looks {reach:.1f} tokens back on average; {float(share[-1]):.0%} hangs on the last one"
    return Seen(Finding("saliency", Level.SOUND, reach, 1.0, verdict), numbers)
