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
from recur.tasks.contract import Moment, Task
from recur.tasks.options import TaskOptions
from recur.train.bystander import Bystander
from recur.train.graphs import WARM
from recur.train.ranks import Ranks
from recur.train.threads import pick_threads
from recur.train.trainer import Trainer

WARMING = 0.25
"""Seconds before a GPU is timed, at least."""
PIECES, PIECE = 5, 0.06
"""Of timed steps, and the seconds of each, about."""
LEAST, LONG = 3, 1.0
"""Pieces that are timed, however long they take; and the seconds behind which there are no more."""
MOST = 500
"""Steps of a piece."""


class Speed:
    """Predictions a second, by options. Of several ranks each has its share of a batch; they are taken to be as fast as
    this one, and what they send each other is not counted."""

    def __init__(self, task: Task[Any, Any, Any, Any], data: Any, ranks: Ranks) -> None:
        self.data, self.ranks = data, ranks
        self.threads = task.options.threads
        if task.options.device == "cpu" and not self.threads:
            self.threads = torch.get_num_threads() if ranks.size > 1 else fastest_threads(task, data)

    def __call__(self, options: TaskOptions) -> float:
        share = max(1, (options.batch or 1) // self.ranks.size)
        device = str(self.ranks.device(options.device))
        task = task_of(options.changed(threads=self.threads, batch=share, device=device))
        rate = predictions_a_second(task, self.data)
        gc.collect()  # a trainer and its graphs know each other, and hold memory of the device
        return self.ranks.size * rate


def fastest_threads(task: Task[Any, Any, Any, Any], data: Any) -> int:
    model = task.new_model(data.vocabs)
    batch = next(iter(task.batches(data).batches(0)))
    return pick_threads(lambda: task.training_step(model, batch, None, Moment(0, 0, 0.0)).loss.backward())


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

    timed(2 if trainer.graphs is None else WARM + 2)  # a state comes with the second, and is another form
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
