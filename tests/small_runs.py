"""Runs for tests: begun, stopped as Ctrl-C stops them, and opened again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recur.runs import Run
from recur.tasks import (
    config_text,
    make_options,
    task_class,
    task_of,
    task_of_run,
    text_fingerprints,
    with_carried_cell,
)
from recur.training import Event, Trainer


def ignore(event: Event) -> None:
    """For tests that look at the run, not at what is told on the way."""


def begin(path: Path, task: str = "language", **fields: Any) -> Trainer:
    """A run at its first step."""
    made = task_of(task_class(task).settle(make_options(task, fields)))
    data = made.read()
    options, cell = with_carried_cell(made.options, path)
    run = Run.create(path, task, config_text(options, path), data.vocabs, cell, text_fingerprints(options, path))
    return Trainer(run, task_of(options), data, ignore)


def reopen(path: Path) -> Trainer:
    """The same run where its newest checkpoint is."""
    trainer = _at_start(path)
    trainer.restore()
    return trainer


def _at_start(path: Path) -> Trainer:
    run = Run.open(path, writing=True)
    task = task_of_run(run)
    return Trainer(run, task, task.read(run.vocabs), ignore)


def stop_after(trainer: Trainer, step: int) -> None:
    """Stop as Ctrl-C does."""
    ordinary = trainer.train_on

    def watched(batch: Any) -> None:
        ordinary(batch)
        if trainer.step >= step:
            trainer.stop.set()

    trainer.train_on = watched  # type: ignore[method-assign]
    trainer.train()
    trainer.run.release()
