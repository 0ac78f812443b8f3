"""How far back cells remember: a table of cells × tasks, with the steps and seconds until a task was solved.

Each pair is one run, ended by its clock or once it is solved: an error below 0.01 for adding, 99 % of the symbols for
copying, and for sequences of points (examples/pixels.py) the accuracy that is asked for, on the validation part.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

from recur.tasks import make_options
from recur.training import Event, train

CELLS = ("lstm", "gru", "indrnn", "mingru", "rglru", "lru", "slstm", "elman")

STARTS: dict[tuple[str, str], dict[str, Any]] = {
    ("copy", "lstm"): {"forget_bias": 7.0},
    ("copy", "gru"): {"forget_bias": 7.0},
    ("copy", "lru"): {"cell": "lru:r_min=0.999", "hidden_size": 256, "lr": 0.01},
    ("copy", "indrnn"): {"cell": "indrnn:horizon=1000"},
    ("adding", "indrnn"): {"cell": "indrnn:horizon=600"},
}
"""Where cells start that are to remember for so long: a state lasts 1 + eᵇ steps, 1 / (1 − |λ|), or its horizon."""


class Memory(NamedTuple):
    task: str
    fields: dict[str, Any]
    metric: str
    solved: float
    """At or below this."""


SHARED = {
    "hidden_size": 128,
    "batch_size": 64,
    "lr": 0.003,
    "optimizer": "adam",
    "grad_clip": 1.0,
    "schedule": "constant",
}
POINTS = {**SHARED, "lr": 0.001, "schedule": "cosine", "batch_size": 128, "direction": "forward", "pool": "last"}


def tasks(points: Path | None, permuted: Path | None) -> dict[str, Memory]:
    found = {
        "adding 600": Memory("adding", {**SHARED, "length": 600}, "valid_mse", 0.01),
        "copying 1,000": Memory("copy", {**SHARED, "length": 1000, "embedding_size": 0}, "valid_error", 0.01),
    }
    for name, path, error in (("points", points, 0.010), ("points permuted", permuted, 0.040)):
        if path is not None:
            found[name] = Memory("classify", {**POINTS, "texts": str(path)}, "valid_error", error)
    return found


def measure(cell: str, name: str, memory: Memory, minutes: float, device: str) -> dict[str, Any]:
    """One run; what it had reached, and when it was solved."""
    stop, row = threading.Event(), {"cell": cell, "task": name, "best": float("inf"), "solved": False}

    def look(event: Event) -> None:
        if event.kind != "measured":
            return
        found = event.content
        row.update(steps=found["step"], seconds=found["seconds"], best=min(row["best"], found[memory.metric]))
        if found[memory.metric] <= memory.solved:
            row["solved"] = True
            stop.set()

    fields = {**memory.fields, "cell": cell, "minutes": minutes, "eval_every": 1.0, "baseline": False, "device": device}
    fields |= STARTS.get((memory.task, cell), {})
    if memory.task == "classify":
        fields["eval_every"] = 0.5
    with tempfile.TemporaryDirectory() as folder:
        train(make_options(memory.task, fields), Path(folder) / "run", look, stop)
    return row


def report(rows: list[dict[str, Any]]) -> list[str]:
    """A line a cell: where a task was solved, after how many steps and seconds; else the best that it came to."""
    names = list(dict.fromkeys(row["task"] for row in rows))
    lines = ["| cell | " + " | ".join(names) + " |", "| --- " * (1 + len(names)) + "|"]
    for cell in dict.fromkeys(row["cell"] for row in rows):
        own = {row["task"]: row for row in rows if row["cell"] == cell}
        shown = [
            "" if (row := own.get(name)) is None
            else f"{row['steps']:,} steps, {row['seconds']:.0f} s" if row["solved"]
            else f"not: {row['best']:.3g}"
            for name in names
        ]  # fmt: skip
        lines.append(f"| {cell} | " + " | ".join(shown) + " |")
    return lines
