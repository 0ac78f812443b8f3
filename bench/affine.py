"""Cells that are affine in their states, all of time at once, beside the same one step after the other.

The cell is the minGRU of its paper, as the package `minGRU-pytorch` has it: h' = (1 − z) ⊙ h + z ⊙ g(x_n) with a
positive g. The package takes logarithms, cumulative sums of them and of their exponentials, which costs digits; recur
takes chunks. They take turns, and what does not agree is not timed.

Beside the times stands the share of the machine's floor: what a pass must read and write at least (the input, the
outputs, their gradients, each once) over its memory's rate, or its products over the matmul rate, whichever is longer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from bench.side_by_side import Contest, machine, refuse_unequal
from recur.cells import Cell, State, Tensors
from recur.ops import scan

SHORT = [(64, 100, 64), (64, 100, 512), (16, 1000, 64), (4, 1000, 64)]
NARROW = [(1, 10000, 4), (1, 10000, 16), (1, 10000, 32)]
LONG = [(1, 100, 64), (1, 1000, 16), (1, 1000, 64), *NARROW, (1, 10000, 64), (1, 100000, 64), (1, 10000, 512)]
LARGE = [(16, 1000, 256), (64, 1000, 512), (32, 10000, 256)]
SIZES = {"cpu": [*LONG, *SHORT], "cuda": [(1, 16, 64), *LONG, *SHORT, *LARGE]}
"""B, T and H, which is the width of the input too."""
PACKAGE = "minGRU-pytorch"
MOST_LOOP_STEPS = 2000
"""A loop of more is not waited for."""


class PaperMinGRU(Cell):
    """z = σ(x_z)   h' = (1 − z) ⊙ h + z ⊙ g(x_n)   with g(a) = a + ½ for a ≥ 0, else σ(a)."""

    gates = ("n", "z")
    state_gates = ()

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        z, n = torch.sigmoid(x.z), torch.where(x.n < 0, torch.sigmoid(x.n), x.n + 0.5)
        return ((1 - z) * s.h + z * n,)


def rows(device: str, threads: int, rounds: int, match: str = "") -> Iterator[dict[str, Any]]:
    """A row for each size and direction: milliseconds by backend, and the share of the floor that the best reaches."""
    torch.set_num_threads(threads)
    memory, matmul = memory_rate(device), matmul_rate(device)
    for B, T, H in SIZES[device]:
        for backward in (False, True):
            what = f"B {B} T {T} H {H}, {'forward + backward' if backward else 'forward'}"
            if match not in what:
                continue
            runs = runners(B, T, H, device, backward)
            left_out = []
            for name, run in list(runs.items()):
                try:
                    tolerance = 1e-2 if name == PACKAGE else 1e-4
                    refuse_unequal(Contest(f"{name}, {what}", run, runs["auto"], tolerance))
                except SystemExit as wrong:
                    if name != PACKAGE:
                        raise
                    left_out.append(str(wrong))
                    del runs[name]
            times = taking_turns(runs, rounds, device)
            N, passes = B * T, 3 if backward else 1
            floor = max(N * 2 * H * 4 * (2.5 if backward else 1) / memory, 2 * N * H * 2 * H * passes / matmul)
            yield {
                "what": what,
                "threads": threads,
                "ms": times,
                "of floor": floor * 1e3 / times["auto"],
                "left out": left_out,
            }


def runners(B: int, T: int, H: int, device: str, backward: bool) -> dict[str, Callable[[], dict[str, Tensor]]]:
    torch.manual_seed(0)
    cell = PaperMinGRU()
    bound = H**-0.5
    U = torch.empty(2 * H, H, device=device).uniform_(-bound, bound).requires_grad_(backward)
    x = torch.randn(B, T, H, device=device, requires_grad=backward)
    arriving = torch.randn(B, T, H, device=device)

    def finish(outputs: Tensor) -> dict[str, Tensor]:
        found = dict(zip(("x", "U"), torch.autograd.grad(outputs, (x, U), arriving), strict=True)) if backward else {}
        return {"outputs": outputs.detach(), **found}

    def ours(backend: str) -> Callable[[], dict[str, Tensor]]:
        def run() -> dict[str, Tensor]:
            with torch.set_grad_enabled(backward):
                return finish(scan(cell, {"weight_ih": U}, x, backend=backend).outputs)

        return run

    def package() -> dict[str, Tensor]:
        with torch.set_grad_enabled(backward):
            return finish(minGRU.forward(holder, x))

    runs = {"auto": ours("auto"), "parallel": ours("parallel")}
    if device == "cpu":
        runs["native"] = ours("native")
    if T <= MOST_LOOP_STEPS:
        runs["loop"] = ours("loop")
    try:
        from minGRU_pytorch import minGRU  # type: ignore[import-untyped]
    except ImportError:
        return runs
    holder = minGRU(H).to(device)
    del holder.to_hidden_and_gate.weight
    holder.to_hidden_and_gate.weight = U
    return runs | {PACKAGE: package}


def taking_turns(runs: dict[str, Callable[[], Any]], rounds: int, device: str) -> dict[str, float]:
    """Medians, in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds(run, device))
    return {name: statistics.median(found) * 1e3 for name, found in times.items()}


def seconds(run: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def memory_rate(device: str) -> float:
    """Bytes read and written a second, by copying more than any cache holds."""
    many = 2**28 if device == "cuda" else 2**26
    a, b = (torch.ones(many, device=device) for _ in range(2))
    return 8 * many / min(seconds(lambda: b.copy_(a), device) for _ in range(5))


def matmul_rate(device: str) -> float:
    side = 8192 if device == "cuda" else 1024
    a = torch.rand(side, side, device=device)
    return 2 * side**3 / min(seconds(lambda: a @ a, device) for _ in range(5))


def line(row: dict[str, Any]) -> str:
    times = "  ".join(f"{name} {ms:.3g}" for name, ms in row["ms"].items())
    times += "".join(f"  {PACKAGE}: off" for _ in row["left out"])
    return f"{row['what']:<44} {row['threads']:>2} threads   ms: {times}   of the floor {row['of floor']:.0%}"


def measure(device: str, threads: list[int], rounds: int, match: str = "") -> dict[str, Any]:
    found = []
    for count in threads:
        for row in rows(device, count, rounds, match):
            found.append(row)
            print(line(row), flush=True)
    on = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"machine": machine() | {"device": on}, "results": found}
