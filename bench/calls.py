"""Overhead of small calls beyond the arithmetic: Python and autograd, one streaming step, one call of a cell module.

The arithmetic is the core's own time: the same struct handed to it again and again, nothing else. Ours, the core alone
and torch.nn take turns; the quickest of short rounds is the figure, for other programs can only add to it. The gradient
of the outputs is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from recur.nn import Recurrent, drop_in
from recur.nn.streaming import get_native_stack
from recur.ops.cpu.plans import CorePlan
from recur.ops.cpu.streaming import addresses

PEERS: dict[str, Callable[..., nn.Module]] = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS = ("RNNCell", "GRUCell", "LSTMCell")
CELL_SIZES = [(B, H) for H in (16, 64, 256, 512, 1024) for B in (1, 4, 16, 64)]
"""B and H of one step of a cell module."""
SIZES = [(1, 8), (4, 8), (16, 8), (4, 32), (16, 64)]
"""T and H, at B 1."""
CALLS = 10


def training(cell: str, T: int, H: int, rounds: int) -> dict[str, float]:
    """Microseconds of a forward and a backward pass: ours, the core's share of it, and torch.nn's."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    peer = PEERS[cell](H, H, batch_first=True)
    ours = Recurrent(cell, H, H)
    ours.load_state_dict(peer.state_dict())
    x, gradient = torch.randn(1, T, H), torch.randn(1, T, H)

    def passes(net: nn.Module) -> Callable[[], tuple[Tensor, ...]]:
        weights = list(net.parameters())
        return lambda: torch.autograd.grad(net(x)[0], weights, gradient)

    for a, b in zip(passes(ours)(), passes(peer)(), strict=True):
        if not torch.allclose(a, b, atol=1e-4):
            raise SystemExit(f"{cell}: the gradients differ; what is wrong is not timed")
    return _quickest({"ours": passes(ours), "core": _core_alone(passes(ours)), "torch.nn": passes(peer)}, rounds)


def streaming(cell: str, H: int, rounds: int) -> dict[str, float]:
    """Microseconds of a step of a stream, the core's share of it, and a step of torch.nn's layer."""
    torch.set_num_threads(1)
    ours, peer = Recurrent(cell, H, H), PEERS[cell](H, H).eval()
    ours.load_state_dict(peer.state_dict())
    x = torch.randn(1, H)
    stream = ours.stream()
    stream.step(x)
    stack, states = get_native_stack(ours, x), [[torch.zeros(1, H) for _ in ours.cell.states]]
    assert stack is not None
    state: Any = None

    @torch.no_grad()
    def step() -> None:
        nonlocal state
        _, state = peer(x[None], state)

    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: stream.step(x),
        "core": stack.call(x, addresses(states, states)),
        "torch.nn": step,
    }
    return _quickest(runs, rounds)


def one_step(kind: str, B: int, H: int, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds of one call of a cell module, by what is computed: ours and torch.nn's."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    peer, ours = getattr(nn, kind)(H, H), getattr(drop_in, kind)(H, H)
    ours.load_state_dict(peer.state_dict())
    x, h, gradient = torch.randn(B, H), torch.randn(B, H), torch.randn(B, H)
    state = (h, h.clone()) if kind == "LSTMCell" else h

    def forward(cell: nn.Module) -> Callable[[], Any]:
        return torch.no_grad()(lambda: cell(x, state))

    def passes(cell: nn.Module) -> Callable[[], tuple[Tensor, ...]]:
        weights = list(cell.parameters())

        def run() -> tuple[Tensor, ...]:
            found = cell(x, state)
            return torch.autograd.grad(found[0] if isinstance(found, tuple) else found, weights, gradient)

        return run

    for a, b in zip(passes(ours)(), passes(peer)(), strict=True):
        if not torch.allclose(a, b, rtol=1e-4, atol=1e-3):
            raise SystemExit(f"{kind}: the gradients differ; what is wrong is not timed")
    return {
        what: _quickest({"ours": run(ours), "torch.nn": run(peer)}, rounds)
        for what, run in (("forward", forward), ("forward and back", passes))
    }


def per_sample(cell: str, rounds: int) -> dict[str, float]:
    """Microseconds of the gradients of each of 32 samples, T 40 and H 64, and of one backward pass of the batch."""
    torch.set_num_threads(1)
    net, x = Recurrent(cell, 64, 64), torch.randn(32, 40, 64)
    weights = {name: weight.detach() for name, weight in net.named_parameters()}

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs: Tensor = functional_call(net, weights, (x[None],)).outputs
        return outputs.square().sum()

    each = vmap(grad(loss), (None, 0))
    batch = list(net.parameters())
    return _quickest(
        {
            "per sample": lambda: each(weights, x),
            "batch": lambda: torch.autograd.grad(net(x).outputs.square().sum(), batch),
        },
        rounds,
    )


def _core_alone(run: Callable[[], Any]) -> Callable[[], None]:
    """The core's calls of a pass, and nothing else."""
    made: list[tuple[CorePlan, Sequence[Tensor]]] = []
    whole = CorePlan.run

    def watched(plan: CorePlan, tensors: Sequence[Tensor]) -> None:
        made.append((plan, tensors))
        whole(plan, tensors)

    with mock.patch.object(CorePlan, "run", watched):
        run()
    calls = [plan.call(tensors) for plan, tensors in made]

    def again() -> None:
        assert made  # the tensors live for as long as this does
        for call in calls:
            call()

    return again


def _quickest(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        for _ in range(CALLS):
            run()
    for _ in range(rounds):
        for name, run in runs.items():
            begun = time.perf_counter()
            for _ in range(CALLS):
                run()
            times[name].append((time.perf_counter() - begun) / CALLS * 1e6)
    return {name: min(seen) for name, seen in times.items()}
