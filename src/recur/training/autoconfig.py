"""How many threads pay on this machine now."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from recur.errors import OptionError
from recur.runs import check_precision, pick_precision
from recur.tasks import task_of
from recur.tasks.contract import Moment, Task
from recur.tasks.options import TaskOptions
from recur.training.distributed import NullRun, ProcessGroup
from recur.training.events import Callback, Event
from recur.training.graphs import WARMUP_STEPS
from recur.training.trainer import Trainer

ROUNDS, MAX_ROUND_SECONDS = 5, 1.0
"""Steps that are timed with each number of threads, and the seconds after which no further round begins."""


def pick_threads(step: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> int:
    """Return one thread or all cores, whichever takes a training step faster now: on a busy machine, where threads wait
    for each other, one can be many times as fast as two."""
    before = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    candidates = sorted({1, min(cores, before)})
    if len(candidates) == 1:
        return candidates[0]
    seconds: dict[int, list[float]] = {threads: [] for threads in candidates}
    try:
        first = clock()
        for _ in range(ROUNDS):
            for threads, times in seconds.items():
                torch.set_num_threads(threads)
                begun = clock()
                step()
                times.append(clock() - begun)
            if clock() - first > MAX_ROUND_SECONDS:
                break
    finally:
        torch.set_num_threads(before)
    # The first step of each warms up; of a step as long as that, it is all there is.
    return min(candidates, key=lambda threads: statistics.fmean(seconds[threads][1:] or seconds[threads]))


GPU_WARMUP = 0.25
"""Seconds before a GPU is timed, at least."""
MAX_SAMPLES, SAMPLE_SECONDS = 5, 0.06
"""Of timed steps, and the seconds of each, about."""
MIN_SAMPLES, MAX_SECONDS = 3, 1.0
"""Pieces that are timed at least, and the seconds after which no more are. A step that takes as long is timed once."""
BATCH_FRACTION = 16
"""Where a step takes LONG, threads are chosen by a step on this part of a batch."""
MAX_STEPS_PER_SAMPLE = 500
"""Steps of a piece."""


class ThroughputProbe:
    """Predictions a second, by options. Of several ranks each has its share of a batch; they are taken to be as fast as
    this one, and what they send each other is not counted."""

    def __init__(self, task: Task[Any, Any, Any, Any], data: Any, ranks: ProcessGroup) -> None:
        self.data, self.ranks = data, ranks
        self.threads = task.options.threads

    def __call__(self, options: TaskOptions) -> float:
        share = max(1, (options.batch or 1) // self.ranks.size)
        options = options.changed(batch=share, device=str(self.ranks.device(options.device)))
        if options.device == "cpu" and not self.threads:  # by the first options of the rule, not by those it replaces
            alone = self.ranks.size == 1
            self.threads = pick_threads_for_task(task_of(options), self.data) if alone else torch.get_num_threads()
        rate = measure_throughput(task_of(options.changed(threads=self.threads)), self.data)
        gc.collect()  # a trainer and its graphs know each other, and hold memory of the device
        return self.ranks.size * rate


def pick_threads_for_task(
    task: Task[Any, Any, Any, Any], data: Any, clock: Callable[[], float] = time.perf_counter
) -> int:
    """Return the number of threads that trains fastest, by steps whose time is bounded: a softmax over 300,000 words
    takes many seconds for a whole batch."""
    model, options = task.new_model(data.vocabs), task.options

    def step_on(rows: int) -> Callable[[], object]:
        batch = next(iter(task_of(options.changed(batch=rows)).batches(data).batches(0)))
        return lambda: task.training_step(model, batch, None, Moment(0, 0, 0.0)).loss.backward()

    whole = options.batch or 1
    part = max(1, whole // BATCH_FRACTION)
    step, seconds = step_on(part), 0.0
    for _ in range(2):  # the first one warms up
        begun = clock()
        step()
        seconds = clock() - begun
        if seconds > MAX_SECONDS:
            break
    return pick_threads(step if seconds * whole / part > MAX_SECONDS else step_on(whole), clock)


def measure_throughput(
    task: Task[Any, Any, Any, Any], data: Any, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Of training steps, from a batch to the weights."""
    trainer = Trainer(NullRun.of(Path(), task.name, data.vocabs), task, data, lambda event: None)
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

    for _ in range(
        2 if trainer.graphs is None else WARMUP_STEPS + 2
    ):  # the second has a state, which is another signature
        taken, rate = timed(1)
        if taken > MAX_SECONDS and not on_gpu:
            return rate
    taken, warmed = 0.0, 0.0
    while not taken or (on_gpu and warmed < GPU_WARMUP):
        taken, _ = timed(1)
        warmed += taken
    steps = max(1, min(MAX_STEPS_PER_SAMPLE, round(SAMPLE_SECONDS / taken)))
    rates: list[float] = []
    spent = 0.0
    while len(rates) < MIN_SAMPLES or (len(rates) < MAX_SAMPLES and spent < MAX_SECONDS):
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


def sized(
    asked: TaskOptions, task: Task[Any, Any, Any, Any], data: Any, callback: Callback, ranks: ProcessGroup
) -> TaskOptions:
    """Options with what the task leaves to the speed of this machine; of several processes, of the first one's."""
    options: TaskOptions = task.options
    if not task.sizes_itself(asked):
        return options
    fields, words = ranks.first(lambda: task.sized(asked, data, ThroughputProbe(task, data, ranks)))
    callback(Event("note", {"text": words}))
    return options.changed(**fields)


def with_threads(
    task: Task[Any, Any, Any, Any], data: Any, options: TaskOptions, callback: Callback, ranks: ProcessGroup
) -> TaskOptions:
    """Options with a number of threads: the fastest now, which the run keeps, since another one rounds otherwise. Of
    several processes, as many as whoever started them has given each."""
    if options.threads or options.device != "cpu":
        return options
    if ranks.size > 1:
        return options.changed(threads=ranks.first(torch.get_num_threads))
    threads = pick_threads_for_task(task, data)
    text = f"{threads} thread{'s' * (threads > 1)}, the fastest now; the same numbers again: --threads {threads}"
    callback(Event("note", {"text": text}))
    return options.changed(threads=threads)


def move_options(options: TaskOptions, device: torch.device) -> TaskOptions:
    """Options for another device; one that has not their precision takes its own."""
    precision = options.precision
    try:
        check_precision(precision or "float32", device)
    except OptionError:
        precision = pick_precision(device, options.in_16_bits)
    return options.changed(device=str(device), precision=precision)
