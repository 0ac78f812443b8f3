"""How long it takes to look: gradient flow, a report, the page's first view, and a keystroke's next tokens."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import recur
from recur.layers import Recurrent
from recur.probes import Subject, xray
from recur.probes.flow import flow
from recur.studio.folder import Folder, Opened
from recur.studio.views import next_tokens
from recur.train.config import Config
from recur.train.data import load_data
from recur.train.run import Run

TEXT = "If the condition is true, the first suite is executed; otherwise the suite after else"


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
        subject = Subject.of(Recurrent(cell, 64, 256, layers=2), torch.randn(1, 1000, 64))
        found[cell] = seconds(lambda subject=subject: flow(subject, rows=1, steps=1000), rounds)  # type: ignore[misc]
    return found


def report(folder: Path) -> float:
    """All probes and the page of a run with 2 layers of 256, after a few steps of training."""
    model = recur.fit("pydoc", folder / "run", hidden=256, layers=2, steps=20, threads=1, baseline=False)
    begun = time.perf_counter()
    xray(model).html()
    return time.perf_counter() - begun


def first_view(folder: Path, runs: int = 100) -> dict[str, float]:
    """The list of so many runs, read for the first time and again, each with a hundred measurements."""
    entry = {"step": 1, "seconds": 1.0, "train_loss": 2.0, "valid_loss": 2.0, "valid_perplexity": 7.4, "grad_norm": 0.5}
    lines = "".join(json.dumps({**entry, "step": step}) + "\n" for step in range(100))
    for k in range(runs):
        (folder / "runs" / f"run-{k}").mkdir(parents=True)
        (folder / "runs" / f"run-{k}" / "config.toml").write_text(Config().to_toml())
        (folder / "runs" / f"run-{k}" / "metrics.jsonl").write_text(lines)
    begun = time.perf_counter()
    listed = Folder(folder / "runs")
    assert len(listed.list()) == runs
    first = time.perf_counter() - begun
    return {"first": first, "again": seconds(listed.list, 5)}


def keystroke(folder: Path, hidden: int = 512) -> float:
    """From one more character to the bars of what comes next, two layers."""
    config = Config.of(texts="pydoc", hidden=hidden, layers=2, steps=1, baseline=False)
    run = Run.create(folder / "wide", config, load_data(config).vocab)
    run.save_model(run.new_model())
    opened = Opened(folder / "wide")
    typed = iter(range(1, len(TEXT)))
    return seconds(lambda: next_tokens(opened, {"text": TEXT[: next(typed)]}), 60)


def measure() -> dict[str, object]:
    torch.set_num_threads(1)  # one row at a time: a second thread would only wait
    folder = Path(tempfile.mkdtemp())
    try:
        return {
            "flow_1000_steps_s": gradient_flow(),
            "report_s": report(folder),
            "list_100_runs_s": first_view(folder),
            "keystroke_s": keystroke(folder),
        }
    finally:
        shutil.rmtree(folder)
