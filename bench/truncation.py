"""What truncation costs, and what is left of the gradient: full, truncated, sliding and randomized, at one length T.

Times are of a forward and a backward pass of one layer on the default backend, taking turns; a ratio is to full
backpropagation. The gradient is that of a small language model, trained here for a minute, over rows of its validation
text with a loss at every step: its cosine with the full gradient, and its norm over that of the full one. Randomized
truncation keeps each step with π = 1 − 1/τ, so that it crosses τ steps on average; of its draws, the mean is shown too.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import recur
from bench.side_by_side import machine, peak_bytes, seconds
from recur.diagnostics import Subject
from recur.models import LanguageModel
from recur.nn import Recurrent
from recur.ops.bptt import BPTT

WINDOWS = (5, 20, 50)
MODES = {
    "full": BPTT(),
    **{f"truncated:{tau}": BPTT(window=tau) for tau in WINDOWS},
    **{f"sliding:{tau}": BPTT(sliding=tau) for tau in WINDOWS},
    **{f"randomized:{1 - 1 / tau:g}": BPTT(keep=1 - 1 / tau) for tau in WINDOWS},
}
DRAWS = 50
"""Of randomized truncation, whose mean is the full gradient in the limit."""


def costs(cell: str, B: int, T: int, H: int, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds, ratio to full, share of the forward pass and MiB, by mode."""
    torch.manual_seed(0)
    x, weight = torch.randn(B, T, H, requires_grad=True), torch.randn(B, T, H)
    nets = {}
    for name, mode in MODES.items():
        nets[name] = Recurrent(cell, H, H, bptt=mode)
        nets[name].load_state_dict(nets["full"].state_dict())
    runs = {name: _runner(net, x, weight) for name, net in nets.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            forward = seconds(lambda net=nets[name]: net(x))  # type: ignore[misc]
            if turn:  # the first is warming up
                times[name].append((forward, seconds(run)))
    found = {}
    for name, pairs in times.items():
        ratios = [both / full for (_, both), (_, full) in zip(pairs, times["full"], strict=True)]
        found[name] = {
            "ms": statistics.median(both for _, both in pairs) * 1e3,
            "ratio": statistics.median(ratios),
            "forward": statistics.median(forward / both for forward, both in pairs),
            "mib": peak_bytes(runs[name]) / 2**20,
        }
    return found


def _runner(net: Recurrent, x: Tensor, weight: Tensor) -> Callable[[], Any]:
    leaves = [x, *net.parameters()]
    return lambda: torch.autograd.grad(net(x).outputs, leaves, weight)


def quality(cell: str, steps: int, T: int = 200, rows: int = 8) -> dict[str, dict[str, float]]:
    """Cosine with the full gradient of U, W and biases, and the norm over its norm, by mode."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"cell": cell, "hidden_size": 64, "steps": steps, "window": 64, "threads": 1, "baseline": False}
        model = recur.fit("pydoc", task="language", out=Path(folder) / "run", **options)
        subject = Subject.of(model)
        x, y = subject.rows(rows, T)
    network = subject.model.eval()
    assert isinstance(network, LanguageModel)
    full = _gradient(network, x, y, BPTT())
    found = {}
    for name, mode in MODES.items():
        draws = [_gradient(network, x, y, mode) for _ in range(DRAWS if mode.keep is not None else 1)]
        found[name] = {
            "cosine": statistics.fmean(_cosine(draw, full) for draw in draws),
            "norm": statistics.fmean(float(draw.norm() / full.norm()) for draw in draws),
            "cosine of the mean": _cosine(torch.stack(draws).mean(0), full),
        }
    return found


def _gradient(network: LanguageModel, x: Tensor, y: Tensor, mode: BPTT) -> Tensor:
    network.recurrent.bptt = mode
    loss = cross_entropy(network(x).logits.flatten(0, 1), y.flatten())
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(network.recurrent.parameters()))])


def _cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


def lines(cost: dict[str, dict[str, float]], gradient: dict[str, dict[str, float]]) -> Iterator[str]:
    yield f"{'mode':<18}{'ms':>8}{'× full':>8}{'forward':>9}{'MiB':>8}{'cosine':>8}{'norm':>7}{'of mean':>9}"
    for name, part in cost.items():
        g = gradient[name]
        costs = f"{part['ms']:>8.1f}{part['ratio']:>8.2f}{part['forward']:>9.0%}{part['mib']:>8.1f}"
        yield f"{name:<18}{costs}{g['cosine']:>8.3f}{g['norm']:>7.2f}{g['cosine of the mean']:>9.3f}"


def measure(cells: list[str], rounds: int, steps: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    B, T, H = 8, 200, 128
    results = {}
    for cell in cells:
        cost, gradient = costs(cell, B, T, H, rounds), quality(cell, steps)
        print(f"{cell}, B {B} T {T} H {H}, one thread; the gradient of a language model after {steps} steps")
        print("\n".join(lines(cost, gradient)), flush=True)
        results[cell] = {"cost": cost, "gradient": gradient}
    return {"machine": machine(), "B": B, "T": T, "H": H, "steps": steps, "results": results}
