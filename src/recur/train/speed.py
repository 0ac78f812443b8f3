"""How fast this machine trains with some options now: a few steps of the trainer's own, of which nothing is kept."""

from __future__ import annotations

import gc
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

SECONDS = 0.3
"""Over which steps are timed."""
LEAST, MOST = 3, 200
"""Of them."""


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
    """Of training steps, from a batch to the weights; the first ones, which compile or record, are not timed."""
    trainer = Trainer(Bystander.of(Path(), task.name, data.vocabs), task, data, lambda event: None)
    trainer.model.train()
    batches = _without_end(trainer)
    for _ in range(2 if trainer.graphs is None else WARM + 2):  # a state comes with the second, and is another form
        trainer.train_on(next(batches))
    _wait(trainer.device)
    begun, before, done = clock(), trainer.predictions, 0
    while done < LEAST or (clock() - begun < SECONDS and done < MOST):
        trainer.train_on(next(batches))
        _wait(trainer.device)
        done += 1
    return (trainer.predictions - before) / (clock() - begun)


def _without_end(trainer: Trainer) -> Iterator[Any]:
    while True:
        yield from trainer.stream.batches(0)
        trainer.state = None


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
