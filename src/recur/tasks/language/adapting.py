"""Models that go on learning from the text they are measured on, each token after it was predicted.

Cache (Grave, Joulin and Usunier 2017). Beside the softmax, the tokens that followed similar states among the last N:

    P_cache(w) ∝ Σ_i exp(θ h_t · h_i) [w followed h_i]        P = (1 − λ) P_softmax + λ P_cache

Dynamic evaluation (Krause, Kahembwe, Murray and Renals 2018). After every segment of the text, a step down its gradient
g, each entry by what its gradient was in training, and a step back to the trained weights w₀:

    w ← w − η g / (σ + ε) + λ r (w₀ − w)        σ² = mean of g² in training        r = σ / mean σ, at most 1/λ

The state is carried through the whole text in both. What is measured first is never learned first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from recur.models import LanguageModel, State
from recur.models.layers import copy_state, map_state
from recur.runs.weights import GraphCapture

BLOCK = 512
"""Tokens at a time whose states are compared with those before them."""

EPSILON = 1e-3
SEGMENT = 5
"""Tokens between two steps of dynamic evaluation."""

LANES, BATCHES = 100, 500
"""Rows and batches of the training text that σ is found on."""

TRIED = 10_000
"""Tokens of the validation text that settings of dynamic evaluation are tried on."""

SHARPNESS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
RATES = (0.00025, 0.0005, 0.001, 0.002, 0.004)
DECAYS = (0.02, 0.0, 0.01, 0.04, 0.08)
"""What is tried on the validation text: θ and λ of a cache; η and λ of dynamic evaluation."""


class TextLosses(NamedTuple):
    """A text that was read, token by token."""

    h: Tensor
    """(N, H): what V multiplied."""
    logp: Tensor
    """(N,), float64: of the token that came."""


Segment = tuple[Tensor, Tensor, State]
"""h and log P of some tokens, and the state behind them."""


class Cache(NamedTuple):
    size: int
    theta: float
    share: float

    def __str__(self) -> str:
        return f"a cache of {self.size:,} (θ {self.theta:g}, λ {self.share:g})"


class Dynamic(NamedTuple):
    rate: float
    decay: float

    def __str__(self) -> str:
        return f"dynamic evaluation (η {self.rate:g}, λ {self.decay:g})"


# The cache ----------------------------------------------------------------------------------------------------


def cache_probabilities(h: Tensor, y: Tensor, size: int, theta: float) -> Tensor:
    """(N,): P_cache of each token that came; −1 for the first, which has nothing before it."""
    found = [torch.full((1,), -1.0, device=h.device, dtype=torch.float64)]
    for begin in range(1, len(h), BLOCK):
        end, first = min(begin + BLOCK, len(h)), max(0, begin - size)
        t, i = torch.arange(begin, end, device=h.device), torch.arange(first, end - 1, device=h.device)
        scores = theta * (h[begin:end] @ h[first : end - 1].t())
        inside = (i < t[:, None]) & (i >= t[:, None] - size)
        weights = scores.double().masked_fill(~inside, -torch.inf).softmax(-1)
        found.append((weights * (y[first : end - 1] == y[begin:end, None])).sum(-1))
    return torch.cat(found)


def with_cache(read: TextLosses, y: Tensor, cache: Cache) -> Tensor:
    """log P of each token with a cache beside the softmax."""
    return mixed(read.logp, cache_probabilities(read.h, y, cache.size, cache.theta), cache.share)


def mixed(logp: Tensor, cached: Tensor, share: float) -> Tensor:
    both = ((1 - share) * logp.exp() + share * cached).log()
    return torch.where(cached < 0, logp, both)


def choose_cache(read: TextLosses, y: Tensor, size: int) -> Cache:
    """The best θ and λ on a text."""
    best, chosen = torch.inf, Cache(size, SHARPNESS[0], SHARES[0])
    for theta in SHARPNESS:
        cached = cache_probabilities(read.h, y, size, theta)
        for share in SHARES:
            loss = -float(mixed(read.logp, cached, share).mean())
            if loss < best:
                best, chosen = loss, Cache(size, theta, share)
    return chosen


# Reading, with and without learning ---------------------------------------------------------------------------


@torch.no_grad()
def read_static(model: LanguageModel, x: Tensor, y: Tensor, window: int = 4096) -> TextLosses:
    """x and y (N,); the weights stay."""
    state, parts = None, []
    for a, b in zip(x[None].split(window, 1), y[None].split(window, 1), strict=True):
        predicted = model(a, state)
        state = predicted.state
        parts.append((predicted.outputs[0], -model.losses(predicted, b)[0].double()))
    h, logp = zip(*parts, strict=True)
    return TextLosses(torch.cat(h).float(), torch.cat(logp))


def gradient_sizes(model: LanguageModel, ids: Tensor, segment: int = SEGMENT) -> list[Tensor]:
    """σ of every parameter: the root of the mean square of its gradient, over batches of segments of a text."""
    lanes = max(1, min(LANES, len(ids) // (2 * segment + 1)))
    rows = ids[: len(ids) // lanes * lanes].view(lanes, -1)
    parameters, state = list(model.parameters()), None
    squares, count = [torch.zeros_like(p) for p in parameters], 0
    for begin in range(0, min(rows.shape[1] - segment, BATCHES * segment), segment):
        predicted = model(rows[:, begin : begin + segment], state)
        state = model.detached(predicted.state)
        loss = model.loss(predicted, rows[:, begin + 1 : begin + 1 + segment])
        for square, g in zip(squares, torch.autograd.grad(loss, parameters), strict=True):
            square.addcmul_(g, g)
        count += 1
    return [(square / max(count, 1)).sqrt_() for square in squares]


def read_dynamic(
    model: LanguageModel,
    x: Tensor,
    y: Tensor,
    how: Dynamic,
    sizes: list[Tensor],
    segment: int = SEGMENT,
    progress: Callable[[int], object] | None = None,
) -> TextLosses:
    """The same, with a step of learning behind every segment; the weights are put back after it."""
    parameters: list[Tensor] = list(model.parameters())
    trained = [p.detach().clone() for p in parameters]
    mean = sum(float(s.sum()) for s in sizes) / sum(s.numel() for s in sizes)
    pull = [(how.decay * s / mean).clamp_(max=1.0) for s in sizes]
    scale = [how.rate / (s + EPSILON) for s in sizes]

    def learn(a: Tensor, b: Tensor, state: State | None) -> Segment:
        predicted = model(a, state)
        loss = model.loss(predicted, b)
        found = predicted.outputs[0].detach().float(), -model.losses(predicted, b)[0].double()
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, p0, g, eta, decay in zip(parameters, trained, gradients, scale, pull, strict=True):
                p.lerp_(p0, decay).addcmul_(g, eta, value=-1)
        return *found, model.detached(predicted.state)

    step = ReplayedStep(learn) if x.is_cuda else learn
    state, parts = None, []
    try:
        for a, b in _segments(x, y, segment):
            whole = state is not None and a.shape[1] == segment
            h, logp, state = step(a, b, state) if whole else learn(a, b, state)
            parts.append((h, logp))
            if progress is not None:
                progress(b.numel())
    finally:
        with torch.no_grad():
            for p, p0 in zip(parameters, trained, strict=True):
                p.copy_(p0)
    return TextLosses(*(torch.cat(part) for part in zip(*parts, strict=True)))


class ReplayedStep:
    """A step on a GPU as a graph, from the third on: one of five tokens is all launches."""

    def __init__(self, step: Callable[[Tensor, Tensor, State | None], Segment]) -> None:
        self._step, self._calls = step, 0
        self._capture = GraphCapture()

    def __call__(self, a: Tensor, b: Tensor, state: State | None) -> Segment:
        assert state is not None
        self._calls += 1
        if self._calls < 3:  # which allocate and compile
            with self._capture.warm_up():
                return self._step(a, b, state)
        if self._calls == 3:
            self._a, self._b, self._state = a.clone(), b.clone(), map_state(state, Tensor.clone)
            self._graph, (self._h, self._logp) = self._capture.capture(self._captured)
        self._a.copy_(a)
        self._b.copy_(b)
        if state is not self._state:
            copy_state(self._state, state)
        self._graph.replay()
        return self._h.clone(), self._logp.clone(), self._state

    def _captured(self) -> tuple[Tensor, Tensor]:
        h, logp, after = self._step(self._a, self._b, self._state)
        copy_state(self._state, after)
        return h, logp


def choose_dynamic(model: LanguageModel, x: Tensor, y: Tensor, sizes: list[Tensor], segment: int = SEGMENT) -> Dynamic:
    """The best rate on a text, at the first decay, and the best decay at that rate."""

    def loss(how: Dynamic) -> float:
        return -float(read_dynamic(model, x, y, how, sizes, segment).logp.mean())

    found = {how: loss(how) for how in (Dynamic(rate, DECAYS[0]) for rate in RATES)}
    rate = min(found, key=found.__getitem__).rate
    found |= {how: loss(how) for how in (Dynamic(rate, decay) for decay in DECAYS[1:])}
    return min(found, key=found.__getitem__)


def _segments(x: Tensor, y: Tensor, segment: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(x[None].split(segment, 1), y[None].split(segment, 1), strict=True)
