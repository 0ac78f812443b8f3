"""Base of the tasks with generated data (adding, copy), which test how long a network remembers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from torch import nn

from recur.data.text.stream import FULL_BATCH, ProcessShard
from recur.errors import OptionError
from recur.i18n import Message
from recur.runs import Vocabs
from recur.tasks.common.contract import Task, as_file_name, cpu_sampling_blocker
from recur.tasks.common.options import TaskOptions
from recur.tasks.common.predictor import Predictor
from recur.utils.types import JsonObject, Metrics

EPOCH = 100
"""Batches per epoch. Every batch is new: the data are unlimited."""

VALID, TEST = 1 << 40, 1 << 41
"""Seeds of the validation and the test sequences. Training sequences use the seeds (seed, epoch, index)."""

EVALUATION_ROWS = 500
"""Sequences in the validation set and in the test set."""

BatchT = TypeVar("BatchT", bound=tuple[Any, ...])


@dataclass(frozen=True)
class GeneratedData(Generic[BatchT]):
    """Generated batches; each depends on (seed, epoch, index) only."""

    draw: Callable[[np.random.Generator, int], BatchT]
    """Function from a random generator and a number of sequences to a batch."""
    batch: int
    seed: int
    vocabs: Vocabs = field(default_factory=dict)
    share: ProcessShard = FULL_BATCH

    def shared(self, share: ProcessShard) -> GeneratedData[Any]:
        return replace(self, share=share)

    def __len__(self) -> int:
        return EPOCH

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[BatchT]:
        for k in range(skip, EPOCH):
            batch = self.draw(np.random.default_rng((self.seed, epoch, k)), self.batch)
            if self.share == FULL_BATCH:
                yield batch
            else:  # each process draws the whole batch and takes a part: the same data for any number of processes
                parts = [part[self.share.each()] for part in batch]
                yield type(batch)(*parts) if len(parts[0]) else cast(BatchT, None)

    def held_out(self, seed: int) -> BatchT:
        """Return the validation or test sequences (seed VALID or TEST), which do not depend on the training seed."""
        return self.draw(np.random.default_rng(seed), EVALUATION_ROWS)


OptionsT = TypeVar("OptionsT", bound=TaskOptions)
ModelT = TypeVar("ModelT", bound=nn.Module)


class SyntheticTask(Task[OptionsT, GeneratedData[BatchT], ModelT, BatchT]):
    """Task with generated sequences. A subclass draws batches and says when the task counts as solved."""

    verb = "eval"
    unit = "sequences"

    @property
    @abstractmethod
    def length(self) -> int:
        """Return the length of the generated sequences."""

    @property
    def run_name(self) -> str:
        return as_file_name(f"{self.name}-{self.length}-{self.architecture}")

    @abstractmethod
    def draw(self, random: np.random.Generator, rows: int) -> BatchT:
        """Generate a batch."""

    @abstractmethod
    def score(self, model: ModelT, batch: BatchT) -> Metrics:
        """Evaluate a model on a batch."""

    @abstractmethod
    def is_solved(self, scores: Metrics) -> bool:
        """Return True if the scores count as solved."""

    def read(self, vocabs: Vocabs | None = None) -> GeneratedData[BatchT]:
        return GeneratedData(self.draw, self.batch, self.options.seed)

    def batches(self, data: GeneratedData[BatchT]) -> GeneratedData[BatchT]:
        return data

    def unrecordable(self, data: GeneratedData[BatchT]) -> str:
        return cpu_sampling_blocker(self.options)


class Solver(Predictor[ModelT]):
    """Trained network, with the number of steps after which its task was solved."""

    task: SyntheticTask[Any, Any, ModelT]

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        self.refuse(options)
        task = self.task
        if texts:
            raise OptionError(
                Message("the task {task} generates its data; leave {text} out", task=task.name, text=texts[0])
            )
        with torch.no_grad():
            scores = task.score(self.model, task.read().held_out(TEST))
        log = self.run.metrics()
        solved = [entry for entry in log if task.is_solved({k.removeprefix("valid_"): v for k, v in entry.items()})]
        return {
            "model": self.name,
            "cell": task.architecture,
            "length": task.length,
            **scores,
            "solved": task.is_solved(scores),
            "solved_after_steps": solved[0]["step"] if solved else None,
            "steps": log[-1]["step"] if log else 0,
            "beside": [{"model": plain.name, **plain.metrics} for plain in task.baselines(task.read())],
        }
