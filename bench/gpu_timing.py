"""One row of the benchmark on a GPU: sides compared, then timed in turns between CUDA events."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bench.gpu_floor import DEVICE, Problem, floor
from bench.gpu_sides import Side
from recur.errors import RecurError

Shape = tuple[int, int, int]

TOLERANCE = {torch.float32: 1e-2, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Of ‖ours − peer‖ / ‖peer‖: both round what they multiply, float32 in TF32 to as many bits as float16 has."""
AT_ONCE, MOST_AT_ONCE = 2e-3, 20
"""Calls between two events take so many seconds together, and are no more than this."""
FEWEST_ROUNDS = 3


@dataclass
class Contest:
    what: str
    shape: Shape
    dtype: torch.dtype
    peer: str
    gates: int
    sides: Callable[[], dict[str, Side]]
    """Made when its turn has come: `ours`, `peer`, and what else there is."""


def compare(contest: Contest, rounds: int, seconds: float, device: str = "cuda") -> dict[str, Any]:
    B, T, H = contest.shape
    dtype = str(contest.dtype).removeprefix("torch.")
    row: dict[str, Any] = {"what": contest.what, "peer": contest.peer, "dtype": dtype, "B": B, "T": T, "H": H}
    end = time.perf_counter() + seconds
    try:
        sides = contest.sides()
        row["off"], wrong = difference(sides["ours"], sides["peer"], TOLERANCE[contest.dtype])
        if wrong:
            return row | {"refused": wrong}
        for name in [name for name in sides if name not in ("ours", "peer")]:
            row[f"{name} left out"] = _why_not(sides[name], sides["peer"], TOLERANCE[contest.dtype])
            if row[f"{name} left out"]:
                del sides[name]
        left = end - time.perf_counter()
        for what, backward, until in (("forward", False, end - 0.7 * left), ("both", True, end)):
            row[what] = taking_turns(sides, backward, rounds, until, device)
            row[what]["us_a_step"] = {name: us / T for name, us in row[what]["us"].items()}
        row["mib"] = {name: peak_bytes(run, device) / 2**20 for name, run in sides.items()}
    except (RecurError, RuntimeError, MemoryError) as error:
        return row | {"refused": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    row["way"] = getattr(sides["ours"], "config", "")
    p = Problem(contest.gates, B, T, H, H, contest.dtype)
    row["tflops"] = 3 * p.flops / row["both"]["us_a_step"]["ours"] / 1e6
    if device == "cuda" and torch.cuda.get_device_name() == DEVICE:
        bounds = {"forward": floor(p, False), "backward": floor(p, True)}
        row["floor"] = {name: {"us_a_step": us, "by": by} for name, (us, by) in bounds.items()}
        row["of_floor"] = sum(us for us, _ in bounds.values()) / row["both"]["us_a_step"]["ours"]
    return row


def difference(ours: Side, peer: Side, tolerance: float) -> tuple[dict[str, float], str]:
    """Of all that both give, relative to the peer's; and what is wrong with it."""
    off: dict[str, float] = {}
    for backward in (False, True):
        got, expected = ours(backward), peer(backward)
        named = {name if backward else f"{name}, forward alone": (got[name], expected[name]) for name in expected}
        off |= {name: _off(a, b) for name, (a, b) in named.items()}
    wrong = [f"{name} is off by {share:.3g}" for name, share in off.items() if not share <= tolerance]
    return off, f"{', '.join(wrong)}; what is wrong is not timed" if wrong else ""


def _off(got: torch.Tensor, expected: torch.Tensor) -> float:
    a, b = got.detach().double(), expected.detach().double()
    return float((a - b).norm() / b.norm().clamp(min=1e-30))


def _why_not(other: Side, peer: Side, tolerance: float) -> str:
    try:
        return difference(other, peer, tolerance)[1]
    except Exception as error:  # it compiles itself, which may fail in any way
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def taking_turns(sides: dict[str, Side], backward: bool, rounds: int, until: float, device: str) -> dict[str, Any]:
    """Medians in µs a call, and how many times as fast as the peer ours is: the median of paired ratios."""
    many, host = {}, {}
    for name, run in sides.items():
        for _ in range(2):
            run(backward)
        once, host[name] = elapsed(run, backward, 1, device)
        many[name] = max(1, min(MOST_AT_ONCE, round(AT_ONCE / once)))
    times: dict[str, list[float]] = {name: [] for name in sides}
    order, turn = list(sides), 0
    while turn < FEWEST_ROUNDS or (turn < rounds and time.perf_counter() < until):
        for name in order if turn % 2 else reversed(order):
            whole, in_python = elapsed(sides[name], backward, many[name], device)
            times[name].append(whole / many[name])
            host[name] = min(host[name], in_python / many[name])
        turn += 1
    ratios = [peer / ours for ours, peer in zip(times["ours"], times["peer"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "us": {name: statistics.median(found) * 1e6 for name, found in times.items()},
        "host_us": {name: found * 1e6 for name, found in host.items()},
        "times": middle,
        "quartiles": (low, high),
        "rounds": turn,
    }


def elapsed(run: Side, backward: bool, many: int, device: str) -> tuple[float, float]:
    """Seconds of so many calls on the device, and until Python had made them."""
    if device != "cuda":
        begin = time.perf_counter()
        for _ in range(many):
            run(backward)
        whole = time.perf_counter() - begin
        return whole, whole
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    first.record()
    for _ in range(many):
        run(backward)
    last.record()
    in_python = time.perf_counter() - begin
    torch.cuda.synchronize()
    return first.elapsed_time(last) * 1e-3, in_python


def peak_bytes(run: Side, device: str) -> int:
    if device != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = run(True)  # the gradients are part of it
    found = torch.cuda.max_memory_allocated() - before
    del kept
    return found
