"""How long it takes to look: gradient flow, and a report."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import recur
from recur.diagnostics import Subject, xray
from recur.diagnostics.gradient_flow import flow
from recur.nn import Recurrent


def seconds(work: Callable[[], object], rounds: int) -> float:
    """The median, after one round to warm up."""
    work()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def gradient_flow(rounds: int = 3) -> dict[str, float]:
    """1,000 steps through 2 layers of 256 units."""
    found = {}
    for cell in ("elman", "gru", "lstm"):
        subject = Subject.of(Recurrent(cell, 64, 256, num_layers=2), torch.randn(1, 1000, 64))
        found[cell] = seconds(lambda subject=subject: flow(subject, rows=1, steps=1000), rounds)  # type: ignore[misc]
    return found


def report(folder: Path) -> float:
    """All probes and the page of a run with 2 layers of 256, after a few steps of training."""
    sizes = {"hidden_size": 256, "num_layers": 2, "steps": 20, "threads": 1, "baseline": False}
    model = recur.fit("pydoc", task="language", out=folder / "run", device="cpu", **sizes)
    begun = time.perf_counter()
    xray(model).html()
    return time.perf_counter() - begun


def measure() -> dict[str, object]:
    torch.set_num_threads(1)  # one row at a time: a second thread would only wait
    folder = Path(tempfile.mkdtemp())
    try:
        return {
            "flow_1000_steps_s": gradient_flow(),
            "report_s": report(folder),
        }
    finally:
        shutil.rmtree(folder)
