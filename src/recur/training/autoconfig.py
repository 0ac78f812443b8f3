"""Automatic configuration: options that the user leaves to this machine, and the measurements that decide them.

`resolve_options` completes the options of a run. It times training steps with throwaway models:

    warm-up   until kernels are compiled, CUDA graphs are captured, and an idle GPU has raised its clock
    samples   of consecutive steps, as in training; a GPU is synchronised once per sample
    result    the fastest sample on a GPU, the median on the CPU

A sample that is slow on a GPU was disturbed by something that passes. On the CPU other programs slow samples down, and
will do so during training too.
"""

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
from recur.i18n import Message
from recur.runs import check_precision, pick_precision
from recur.tasks import task_of
from recur.tasks.common.contract import Task, TrainingProgress
from recur.tasks.common.options import FoldOptions, SplitOptions, TaskOptions
from recur.training.distributed import NullRun, ProcessGroup
from recur.training.graphs import WARMUP_STEPS
from recur.training.trainer import Trainer
from recur.utils.types import JsonObject

AnyTask = Task[Any, Any, Any, Any]

THREAD_ROUNDS, THREAD_SECONDS = 5, 1.0
"""Rounds of timed steps with each number of threads, and the seconds after which no further round begins."""

GPU_WARMUP = 0.25
"""Fewest seconds of steps before a GPU is timed."""
MAX_SAMPLES, SAMPLE_SECONDS = 5, 0.06
"""Samples at most, and the seconds of each, about."""
MIN_SAMPLES, MAX_SECONDS = 3, 1.0
"""Samples at least, and the seconds after which no further one begins. A step that takes as long is timed once."""
BATCH_FRACTION = 16
"""If a step takes longer than MAX_SECONDS, threads are chosen by a step on one in so many rows of a batch."""
MAX_STEPS_PER_SAMPLE = 500


# Options ---------------------------------------------------------------------------------------------------------


def resolve_options(
    requested: TaskOptions, settled: TaskOptions, data: Any, group: ProcessGroup
) -> tuple[TaskOptions, list[str]]:
    """Return the final options of a run, and notes for the user on what was chosen.

    Args:
        requested: what the user set; a field that is set is not chosen here.
        settled: the same with the task's defaults for the files and the device (`Task.settle`), which `data` was read
            with.
        group: the processes that train. Rank 0 measures and decides for all ranks.
    """
    notes = _describe_settled(requested, settled)
    fields, more = group.from_rank0(lambda: _tune(requested, settled, data, group))
    return settled.changed(**fields), notes + more


def _tune(requested: TaskOptions, settled: TaskOptions, data: Any, group: ProcessGroup) -> tuple[JsonObject, list[str]]:
    """Measure this machine; return the fields that follow from it: the size of the network, and the threads."""
    fields: JsonObject = {}
    notes: list[str] = []
    task = task_of(settled)
    if task.sizes_itself(requested):
        fields, note = task.sized(requested, data, ThroughputProbe(task, data, group))
        notes.append(note)
        task = task_of(settled.changed(**fields))
    task.check_size(data.vocabs)  # before a model of this size is created to time its threads
    if not settled.threads and settled.device == "cpu":
        # The run keeps this number: another number of threads rounds differently.
        if group.size > 1:
            threads = torch.get_num_threads()  # set by the launcher for each process
        else:
            threads = pick_threads_for_task(task, data)
            notes.append(
                f"using {threads} thread{'s' * (threads > 1)} (fastest now); add --threads {threads} to reproduce "
                "the same numbers"
            )
        fields = {**fields, "threads": threads}
    return fields, notes


def _describe_settled(requested: TaskOptions, settled: TaskOptions) -> list[str]:
    """Return notes on the choices of `Task.settle` and on the split of the data."""
    notes = []
    if text := task_of(settled).settled_words(requested, settled):
        notes.append(text)
    if requested.precision is None and settled.precision != "float32":
        notes.append(
            Message(
                "using {precision} matmuls (fastest on this device, same quality); use --precision float32 for exact "
                "products",
                precision=settled.precision,
            )
        )
    folds = isinstance(settled, FoldOptions) and bool(settled.fold)
    if isinstance(settled, SplitOptions):
        trained_on = {Path(name).resolve() for name in settled.texts}
        if both := [name for name in settled.valid if Path(name).resolve() in trained_on]:
            notes.append(
                Message(
                    "{names}: used for both training and validation; the metrics will be optimistic",
                    names=", ".join(both),
                )
            )
        if settled.valid and not settled.test and not folds:
            notes.append("a test set is held out of the training data for recur eval; give --test FILE to train on all")
    return notes


def move_options(options: TaskOptions, device: torch.device) -> TaskOptions:
    """Return options for another device; with its own precision, if it does not support theirs."""
    precision = options.precision
    try:
        check_precision(precision or "float32", device)
    except OptionError:
        precision = pick_precision(device, options.in_16_bits)
    return options.changed(device=str(device), precision=precision)


# Measurements ----------------------------------------------------------------------------------------------------


class ThroughputProbe:
    """Function that returns the predictions per second of some options on this machine.

    With several processes, each trains its share of a batch. They are assumed to be as fast as this one, and their
    communication is not counted.
    """

    def __init__(self, task: AnyTask, data: Any, group: ProcessGroup) -> None:
        self.data, self.group = data, group
        self.threads = task.options.threads

    def __call__(self, options: TaskOptions) -> float:
        share = max(1, (options.batch_size or 1) // self.group.size)
        options = options.changed(batch_size=share, device=str(self.group.device(options.device)))
        if options.device == "cpu" and not self.threads:  # choose threads once, by the first options
            single = self.group.size == 1
            self.threads = pick_threads_for_task(task_of(options), self.data) if single else torch.get_num_threads()
        rate = measure_throughput(task_of(options.changed(threads=self.threads)), self.data)
        gc.collect()  # a trainer and its graphs refer to each other, and hold memory of the device
        return self.group.size * rate


def measure_throughput(task: AnyTask, data: Any, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the predictions per second of whole training steps, from a batch to the updated weights."""
    trainer = Trainer(NullRun.of(Path(), task.name, data.vocabs), task, data, lambda event: None)
    trainer.model.train()
    batches, on_gpu = _repeat_batches(trainer), trainer.device.type == "cuda"

    def timed(steps: int) -> tuple[float, float]:
        """Return the seconds of some steps, and their predictions per second."""
        begun, before = clock(), trainer.predictions
        for _ in range(steps):
            trainer.train_on(next(batches))
        if on_gpu:
            torch.cuda.synchronize(trainer.device)
        seconds = clock() - begun
        return seconds, (trainer.predictions - before) / seconds

    # The second batch has a hidden state, which makes another signature of CUDA graphs.
    for _ in range(2 if trainer.graphs is None else WARMUP_STEPS + 2):
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


def _repeat_batches(trainer: Trainer) -> Iterator[Any]:
    while True:
        yield from trainer.stream.batches(0)
        trainer.state = None


def pick_threads_for_task(task: AnyTask, data: Any, clock: Callable[[], float] = time.perf_counter) -> int:
    """Return the number of threads that trains a task fastest.

    The time of the trial steps is bounded: with a softmax over 300,000 words, a whole batch takes many seconds.
    """
    model, options = task.new_model(data.vocabs), task.options

    def step_on(rows: int) -> Callable[[], object]:
        batch = next(iter(task_of(options.changed(batch_size=rows)).batches(data).batches(0)))
        return lambda: task.training_step(model, batch, None, TrainingProgress(0, 0, 0.0)).loss.backward()

    whole = options.batch_size or 1
    part = max(1, whole // BATCH_FRACTION)
    step, seconds = step_on(part), 0.0
    for _ in range(2):  # the first one warms up
        begun = clock()
        step()
        seconds = clock() - begun
        if seconds > MAX_SECONDS:
            break
    return pick_threads(step if seconds * whole / part > MAX_SECONDS else step_on(whole), clock)


def pick_threads(step: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> int:
    """Return 1 or the number of cores, whichever runs a training step faster now.

    On a busy machine, where threads wait for each other, one thread can be many times as fast as two.
    """
    before = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    candidates = sorted({1, min(cores, before)})
    if len(candidates) == 1:
        return candidates[0]
    seconds: dict[int, list[float]] = {threads: [] for threads in candidates}
    try:
        first = clock()
        for _ in range(THREAD_ROUNDS):
            for threads, times in seconds.items():
                torch.set_num_threads(threads)
                begun = clock()
                step()
                times.append(clock() - begun)
            if clock() - first > THREAD_SECONDS:
                break
    finally:
        torch.set_num_threads(before)
    # The first step of each warms up; it counts only if there was time for no other.
    return min(candidates, key=lambda threads: statistics.fmean(seconds[threads][1:] or seconds[threads]))
