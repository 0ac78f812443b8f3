"""How fast this machine trains with some options now: a few steps of the trainer's own, of which nothing is kept.

    warm      until kernels are compiled, steps recorded, and a GPU that was idle has raised its clock
    timed     in pieces, each of some steps that follow each other as in training: a GPU is waited for once a piece
    speed     of the best piece on a GPU, of the middle one on the CPU

What slows a GPU down for a piece is the start of something else, and passes. On the CPU it is who else computes there,
and will while training lasts.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from recur.tasks import task_of
from recur.tasks.common.contract import Task, TrainingProgress
from recur.tasks.common.options import TaskOptions
from recur.training.bystander import Bystander
from recur.training.graphs import WARM
from recur.training.ranks import Ranks
from recur.training.threads import pick_threads
from recur.training.trainer import Trainer

WARMING = 0.25
"""Seconds before a GPU is timed, at least."""
PIECES, PIECE = 5, 0.06
"""Of timed steps, and the seconds of each, about."""
LEAST, LONG = 3, 1.0
"""Pieces that are timed at least, and the seconds after which no more are. A step that takes as long is timed once."""
PART = 16
"""Where a step takes LONG, threads are chosen by a step on this part of a batch."""
MOST = 500
"""Steps of a piece."""


class Speed:
    """Predictions a second, by options. Of several ranks each has its share of a batch; they are taken to be as fast as
    this one, and what they send each other is not counted."""

    def __init__(self, task: Task[Any, Any, Any, Any], data: Any, ranks: Ranks) -> None:
        self.data, self.ranks = data, ranks
        self.threads = task.options.threads

    def __call__(self, options: TaskOptions) -> float:
        share = max(1, (options.batch or 1) // self.ranks.size)
        options = options.changed(batch=share, device=str(self.ranks.device(options.device)))
        if options.device == "cpu" and not self.threads:  # by the first options of the rule, not by those it replaces
            alone = self.ranks.size == 1
            self.threads = fastest_threads(task_of(options), self.data) if alone else torch.get_num_threads()
        rate = predictions_a_second(task_of(options.changed(threads=self.threads)), self.data)
        gc.collect()  # a trainer and its graphs know each other, and hold memory of the device
        return self.ranks.size * rate


def fastest_threads(task: Task[Any, Any, Any, Any], data: Any, clock: Callable[[], float] = time.perf_counter) -> int:
    """Return the number of threads that trains fastest, by steps whose time is bounded: a softmax over 300,000 words
    takes many seconds for a whole batch."""
    model, options = task.new_model(data.vocabs), task.options

    def step_on(rows: int) -> Callable[[], object]:
        batch = next(iter(task_of(options.changed(batch=rows)).batches(data).batches(0)))
        return lambda: task.training_step(model, batch, None, TrainingProgress(0, 0, 0.0)).loss.backward()

    whole = options.batch or 1
    part = max(1, whole // PART)
    step, seconds = step_on(part), 0.0
    for _ in range(2):  # the first one warms up
        begun = clock()
        step()
        seconds = clock() - begun
        if seconds > LONG:
            break
    return pick_threads(step if seconds * whole / part > LONG else step_on(whole), clock)


def predictions_a_second(
    task: Task[Any, Any, Any, Any], data: Any, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Of training steps, from a batch to the weights."""
    trainer = Trainer(Bystander.of(Path(), task.name, data.vocabs), task, data, lambda event: None)
    trainer.model.train()
    batches, on_gpu = _without_end(trainer), trainer.device.type == "cuda"

    def timed(steps: int) -> tuple[float, float]:
        """Seconds of so many steps, and predictions a second."""
        begun, before = clock(), trainer.predictions
        for _ in range(steps):
            trainer.train_on(next(batches))
        _wait(trainer.device)
        seconds = clock() - begun
        return seconds, (trainer.predictions - before) / seconds

    for _ in range(2 if trainer.graphs is None else WARM + 2):  # the second has a state, which is another signature
        taken, rate = timed(1)
        if taken > LONG and not on_gpu:
            return rate
    taken, warmed = 0.0, 0.0
    while not taken or (on_gpu and warmed < WARMING):
        taken, _ = timed(1)
        warmed += taken
    steps = max(1, min(MOST, round(PIECE / taken)))
    rates: list[float] = []
    spent = 0.0
    while len(rates) < LEAST or (len(rates) < PIECES and spent < LONG):
        taken, rate = timed(steps)
        rates.append(rate)
        spent += taken
    return max(rates) if on_gpu else statistics.median(rates)


def _without_end(trainer: Trainer) -> Iterator[Any]:
    while True:
        yield from trainer.stream.batches(0)
        trainer.state = None


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
