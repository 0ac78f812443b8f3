"""Tasks that make their own data, to see how far back a network remembers. What they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from recur.errors import OptionError
from recur.models import ReaderOptions
from recur.train.config import Config
from recur.train.machine import pick_device
from recur.train.tasks.task import Opened, Task, Vocabs

if TYPE_CHECKING:
    from recur.train.run import Run

EPOCH = 100
"""Batches in what is called an epoch; none comes twice."""

VALID, TEST = 1 << 40, 1 << 41
"""Where the draws of what is measured on begin: no epoch reaches them."""

MEASURED = 500
"""Sequences measured on."""


@dataclass(frozen=True)
class Generated:
    """Batches drawn from (seed, epoch, place in it) alone."""

    draw: Callable[[np.random.Generator, int], Any]
    """From a source of random numbers and a number of sequences to a batch of so many."""
    batch: int
    seed: int
    vocabs: Vocabs = field(default_factory=dict)

    def __len__(self) -> int:
        return EPOCH

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[Any]:
        for k in range(skip, EPOCH):
            yield self.draw(np.random.default_rng((self.seed, epoch, k)), self.batch)

    def held(self, which: int) -> Any:
        """What is measured on: the same for every seed of training."""
        return self.draw(np.random.default_rng(which), MEASURED)


class SyntheticTask(Task):
    vocab_names = ()
    verb = "eval"
    network: ClassVar[tuple[str, ...]] = ("cell", "hidden", "layers", "init", "forget_bias", "bptt", "backend")
    """The options that the network reads."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if config.texts != Config.texts or config.valid or config.test:
            raise OptionError(f"{self.title} makes its own data; leave {config.texts[0]} away")

    @property
    def name(self) -> str:
        return f"{self.config.task}-{self.config.length}-{self.config.cell}"

    def options(self) -> ReaderOptions:
        names = ReaderOptions.__dataclass_fields__
        return ReaderOptions(**{name: getattr(self.config, name) for name in names if name in self.network})

    @abstractmethod
    def draw(self, random: np.random.Generator, rows: int) -> Any:
        """A batch."""

    @abstractmethod
    def score(self, model: Any, batch: Any) -> dict[str, float]:
        """How good a model is on a batch."""

    @abstractmethod
    def is_solved(self, scores: dict[str, float]) -> bool:
        """Whether scores are good enough to say so."""

    def read(self, vocabs: Vocabs | None = None) -> Generated:
        return Generated(self.draw, self.config.batch, self.config.seed)

    def batches(self, data: Generated) -> Generated:
        return data

    def open(self, run: Run, device: str = "cpu", also: Sequence[Run] = ()) -> Solver:
        if also:
            raise OptionError(f"{self.title} is measured one run at a time")
        return Solver(run, device)


class Solver(Opened):
    """A trained network, and after how many steps it had solved its task."""

    def __init__(self, run: Run, device: str = "cpu") -> None:
        self.run = run
        self.model: Any = run.load_model(str(pick_device(device)))

    def evaluate(self, texts: list[str] | None = None, **options: Any) -> dict[str, Any]:
        self.refuse(options)
        task = self.run.task
        assert isinstance(task, SyntheticTask)
        if texts:
            raise OptionError(f"{task.title} makes its own data; leave {texts[0]} away")
        with torch.no_grad():
            scores = task.score(self.model, task.read().held(TEST))
        measured = self.run.metrics()
        good = [entry for entry in measured if task.is_solved({k.removeprefix("valid_"): v for k, v in entry.items()})]
        c = self.run.config
        return {
            "model": str(self.run.path),
            "cell": c.cell,
            "length": c.length,
            **scores,
            "solved": task.is_solved(scores),
            "solved_after_steps": good[0]["step"] if good else None,
            "steps": measured[-1]["step"] if measured else 0,
        }
