"""What two ranks do in the tests: `torchrun --nproc-per-node 2 -m tests.training.two_ranks FOLDER`, all in one start.

Runs of every task, each beside the same one of a single process; a run stopped by its second rank and gone on with;
one that a single process had begun; and budgets that only a clock or a validation decides.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import torch

from campaigns.small import TASKS
from recur.runs import Run
from recur.tasks import make_options, options_class
from recur.training import ProcessGroup, Trainer, distributed, process_group, resume, train
from recur.utils.processes import launch

PLAIN = {"batch_size": 5, "steps": 4, "threads": 1, "device": "cpu", "optimizer": "sgd", "lr": 0.1, "baseline": False}
"""Rows that two cannot share evenly; gradients as they are, since Adam makes much of what rounding leaves of none."""

BOOK = {**PLAIN, "texts": ("book.txt",), "hidden_size": 8, "window": 8, "eval_every": 0.3, "steps": 24}
BOOK |= {"dropout_input": 0.0, "dropout_output": 0.0, "precision": "float32"}
"""In bfloat16 a loss of 3 rows and one of 2 round otherwise on their ways back than one of 5."""
DROPPED = {
    **BOOK,
    "dropout_input": 0.2,
    "dropout_output": 0.3,
    "jitter": True,
    "gradient_accumulation_steps": 2,
    "initial": "learned",
}


def fields_of(task: str) -> dict[str, Any]:
    """A small run without dropout."""
    names = options_class(task).names()
    given = [argument for argument in TASKS[task] if argument not in ("--cell", "mine.py:Mine")]
    fields: dict[str, Any] = dict(PLAIN)
    if "texts" in names:
        fields["texts"] = given[:1]
    fields |= {"length": 6} if "length" in names else {}
    fields |= {"hidden_size": 4} if task != "tree" else {}
    fields |= {name: 0.0 for name in names if name.startswith("dropout")}
    fields |= {name: 0 for name in ("shift", "unknown") if name in names}
    fields |= {"class_weights": "balanced"} if task in ("classify", "grid") else {}
    return fields


def weights(path: Path | str) -> dict[str, torch.Tensor]:
    """Of the newest checkpoint."""
    return {name: value for name, value in Run.open(path).load_checkpoint()[1].items() if name.startswith("model/")}


def begin(out: str, group: ProcessGroup, task: str = "language", stop_after: int = 0, **fields: Any) -> None:
    stop = threading.Event()
    if stop_after and group.rank == group.size - 1:
        stop_at(stop, stop_after)
    try:
        train(make_options(task, fields), out, stop=stop, group=group)
    finally:
        Trainer.train_on = ORDINARY  # type: ignore[method-assign]


ORDINARY = Trainer.train_on


def stop_at(stop: threading.Event, step: int) -> None:
    def watched(trainer: Trainer, batch: Any) -> None:
        ORDINARY(trainer, batch)
        if trainer.step >= step:
            stop.set()

    Trainer.train_on = watched  # type: ignore[method-assign]


def main(folder: str) -> None:
    os.chdir(folder)
    torch.set_num_threads(1)
    with process_group(launch(), "cpu") as group:
        for task in TASKS:
            begin(f"two/{task}", group, task, **fields_of(task))
        begin("two/straight", group, **DROPPED)
        begin("two/stopped", group, stop_after=11, **DROPPED)
        resume("two/stopped", group=group)
        resume("one/begun", group=group)
        begin("two/begun", group, stop_after=11, **BOOK)
        begin("two/patient", group, **{**BOOK, "lr": 1e-9, "steps": 5000, "patience": 2})
        begin(
            "two/timed", group, **{**DROPPED, "steps": None, "minutes": 0.02, "schedule": "cosine", "eval_every": 0.0}
        )
        group.launch = group.launch._replace(restarts=1)
        resume("two/timed", minutes=0.01, group=group)  # of what was begun before the restart nothing is left
        begin("two/timed", group, **{**BOOK, "steps": 9})
    with process_group(launch(), "cpu", "bfloat16") as group:
        begin("two/compressed", group, **BOOK)
        distributed.BUCKET_BYTES = 0  # as if gradients were too many
        begin("two/compressed-buckets", group, **BOOK)
    with process_group(launch(), "cpu") as group:
        begin("two/buckets", group, **BOOK)


if __name__ == "__main__":
    main(sys.argv[1])
