"""Two ways to do one thing, timed in one process, taking turns.

Machines are shared and noisy: a drift hits both sides of a pair alike, so the figure to trust is the median of the
paired ratios, with their quartiles beside it. What does not agree numerically is not timed.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from recur.ops.cpu.plans import CorePlan

Tensors = dict[str, Tensor]


@dataclass
class Contest:
    """`ours` and `peer` each do the whole job once and return what it gave, by name, to be compared."""

    what: str
    ours: Callable[[], Tensors]
    peer: Callable[[], Tensors]
    tolerance: float = 1e-4
    flops: float = 0.0
    """Of all its matrix products, if its share of the machine's matmul rate is wanted."""


@dataclass
class Result:
    what: str
    threads: int
    ours_ms: float
    peer_ms: float
    ratio: float
    """Time of ours over time of the peer: below 1 is faster."""
    quartiles: tuple[float, float]
    ours_mib: float
    peer_mib: float
    matmul_share: float | None = None
    """Rate of ours over that of a large matrix product, taken in turns with it."""


def compare(contest: Contest, threads: int, rounds: int) -> Result:
    torch.set_num_threads(threads)
    refuse_unequal(contest)
    for _ in range(3):
        contest.ours()
        contest.peer()
    ours: list[float] = []
    peer: list[float] = []
    matmul: list[float] = []
    for turn in range(rounds):
        if contest.flops and turn % 4 == 0:
            matmul.append(MATMUL_FLOPS / seconds(large_matmul))
        pair = [(contest.ours, ours), (contest.peer, peer)]
        for run, times in pair if turn % 2 else reversed(pair):
            times.append(seconds(run))
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Result(
        what=contest.what,
        threads=threads,
        ours_ms=statistics.median(ours) * 1e3,
        peer_ms=statistics.median(peer) * 1e3,
        ratio=middle,
        quartiles=(low, high),
        ours_mib=peak_bytes(contest.ours) / 2**20,
        peer_mib=peak_bytes(contest.peer) / 2**20,
        matmul_share=contest.flops / statistics.median(ours) / statistics.median(matmul) if matmul else None,
    )


MATMUL_FLOPS = 2 * 1024**3


def large_matmul() -> Tensor:
    return torch.mm(_LEFT, _RIGHT)


_LEFT, _RIGHT = torch.rand(1024, 1024), torch.rand(1024, 1024)


def refuse_unequal(contest: Contest) -> None:
    ours, peer = contest.ours(), contest.peer()
    if ours.keys() != peer.keys():
        raise SystemExit(f"{contest.what}: {sorted(ours)} cannot be compared with {sorted(peer)}")
    for name, expected in peer.items():
        off = (ours[name] - expected).abs().max().item()
        bound = contest.tolerance * max(1.0, expected.abs().max().item())
        if not off <= bound:
            raise SystemExit(f"{contest.what}: {name} is off by {off:.3g}; what is wrong is not timed")


def seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def peak_bytes(run: Callable[[], Any]) -> int:
    """The most memory held at once during a run, beyond what was held before it: of tensors, and of our core."""
    plain = CorePlan.run

    def counted(plan: CorePlan, tensors: Sequence[Tensor]) -> None:
        scratch = torch.empty(plan.prepared.scratch, dtype=torch.uint8)  # as much as the core takes, unseen by torch
        plain(plan, tensors)
        del scratch

    with (
        mock.patch.object(CorePlan, "run", counted),
        _silent_stderr(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen,
    ):
        run()
    kineto = seen.profiler.kineto_results
    events = sorted((e for e in kineto.events() if e.name() == "[memory]"), key=lambda e: e.start_ns())
    held = peak = 0
    for event in events:
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def report(results: list[Result]) -> dict[str, Any]:
    return {"machine": machine(), "results": [asdict(result) for result in results]}


def header() -> str:
    columns = "threads", "ours ms", "peer ms", "ratio", "quartiles", "ours MiB", "peer MiB", "of matmul"
    return f"{'ours / peer':<68}" + "".join(f"{column:>10}" for column in columns)


def row(r: Result) -> str:
    times = f"{r.threads:>10}{r.ours_ms:>10.2f}{r.peer_ms:>10.2f}{r.ratio:>10.2f}"
    quartiles = f"{r.quartiles[0]:.2f}–{r.quartiles[1]:.2f}"
    share = "" if r.matmul_share is None else f"{r.matmul_share:.0%}"
    return f"{r.what:<68}{times}{quartiles:>10}{r.ours_mib:>10.1f}{r.peer_mib:>10.1f}{share:>10}"


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """The profiler's library writes a line on every start and stop, past Python's own streams."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
