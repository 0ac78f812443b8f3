"""The contract of a task: what a run trains, and nothing of how."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from torch import Tensor, nn

from recur.errors import OptionError
from recur.text import Vocab
from recur.train.config import Config

if TYPE_CHECKING:
    from recur.train.run import Run

Vocabs = dict[str, Vocab]
"""By the name of their file in a run's folder, without .json."""


class Moment(NamedTuple):
    """Where training stands: for what changes over a run."""

    step: int
    epoch: int
    progress: float
    """0 … 1: how much of the budget is spent."""


class Learned(NamedTuple):
    """What a batch gave."""

    loss: Tensor
    """The mean over what was predicted; a scalar with its gradient."""
    predictions: int
    """How many those are."""
    backend: str
    """Which backend of scan ran."""
    penalty: Tensor | float = 0.0
    """Added to the loss on the way back, and not reported."""
    state: Any = None
    """What the next batch starts from: tensors in (nested) tuples, detached. None for batches that stand alone."""
    rate: float = 1.0
    """A factor on the learning rate, for a batch that is a smaller sample than others."""


class Measured(NamedTuple):
    """How good a model is."""

    score: float
    """Decides which weights are kept; lower is better."""
    metrics: dict[str, float]
    """By their names in metrics.jsonl, each beginning with valid_."""
    said: str
    """The same for a person, in half a line."""


class Batches(Protocol):
    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[Any]:
        """One epoch without its first batches, the same each time."""

    def __len__(self) -> int:
        """How many there are in an epoch, or about so many."""


class Opened(ABC):
    """A trained model for use: what `recur.load` returns."""

    run: Run

    @abstractmethod
    def evaluate(self, texts: list[str] | None = None, **options: Any) -> dict[str, Any]:
        """Its figures on files, or on the run's own test part: a JSON object."""

    def refuse(self, options: dict[str, Any]) -> None:
        """For options that this task's models have no use for."""
        for name in options:
            raise OptionError(f"--{name.replace('_', '-')} is not for the task {self.run.config.task!r}")

    def predict(self, lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
        """What it makes of each line: JSON objects with at least `input` and `output`."""
        raise OptionError(f"{self.run.path} is a run of the task {self.run.config.task!r}, which predicts no lines")


class Task(ABC):
    """What is trained. One is made for each configuration."""

    title: ClassVar[str]
    """What it is called in messages, such as `the task language`."""
    reads: ClassVar[frozenset[str]]
    """The options that it reads beyond COMMON."""
    vocab_names: ClassVar[tuple[str, ...]] = ("vocab",)
    """Its vocabularies' files in a run's folder, without .json."""
    curve: ClassVar[str] = "valid_perplexity"
    """The metric that the screen draws over time, and the summary names."""

    verb: ClassVar[str] = "predict"
    """What one does with a trained model at the command line."""
    likelihood: ClassVar[bool] = True
    """Whether the loss is a mean negative log-likelihood, so that exp of it is a perplexity."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def of(cls, config: Config) -> Task:
        return cls(config)

    @property
    def name(self) -> str:
        """What a run of it is called, if its user does not say."""
        return Path(self.config.texts[0]).stem or "text"

    @property
    def architecture(self) -> str:
        """What is trained, in a word."""
        return self.config.cell

    @abstractmethod
    def read(self, vocabs: Vocabs | None = None) -> Any:
        """The data, with its `vocabs`: those given, or fitted on the training part."""

    @abstractmethod
    def about(self, data: Any) -> str:
        """The data in a line."""

    def baseline(self, data: Any) -> tuple[float, str] | None:
        """Something to beat, on the scale of `curve`, and what to say of it."""
        return None

    @abstractmethod
    def new_model(self, vocabs: Vocabs) -> nn.Module:
        """Fresh weights."""

    @abstractmethod
    def batches(self, data: Any) -> Batches:
        """What is learned from."""

    @abstractmethod
    def learn(self, model: Any, batch: Any, state: Any, moment: Moment) -> Learned:
        """The loss of one batch; `state` is what the batch before left, None at the start of an epoch."""

    def limit(self, vocabs: Vocabs) -> float:
        """A loss above this means that training has come apart."""
        return math.inf

    @abstractmethod
    def measure(self, model: Any, data: Any) -> Measured:
        """How good the model is on the validation part. It is in evaluation mode, and no gradient is kept."""

    @abstractmethod
    def open(self, run: Run, device: str = "cpu", also: Sequence[Run] = ()) -> Opened:
        """The trained model for use; with others like it, as one."""

    def sample(self, model: Any, data: Any) -> str:
        """Something to watch while it trains."""
        return ""
