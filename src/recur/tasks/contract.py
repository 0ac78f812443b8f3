"""The contract of a task: what a run trains, and nothing of how; and what a trained model can do."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from recur.errors import OptionError, RecurError, TextError, shown
from recur.layers import Recurrent
from recur.run import Run, Vocabs, pick_device
from recur.tasks.options import TaskOptions
from recur.tasks.runs import task_of_run, with_own_texts
from recur.tasks.size import check_size
from recur.typedefs import JsonObject, Metrics

OptionsT = TypeVar("OptionsT", bound=TaskOptions)
DataT = TypeVar("DataT", bound="Data")
ModelT = TypeVar("ModelT", bound=nn.Module)
BatchT = TypeVar("BatchT")
BatchT_co = TypeVar("BatchT_co", covariant=True)


class Data(Protocol):
    """What a task reads: whatever it needs, and the vocabularies that a run keeps."""

    @property
    def vocabs(self) -> Vocabs: ...


class Moment(NamedTuple):
    """Where training stands: for what changes over a run."""

    step: int
    epoch: int
    progress: float
    """0 … 1: how much of the budget is spent."""


class TrainingStep(NamedTuple):
    """What a batch gave."""

    loss: Tensor
    """The mean over what was predicted; a scalar with its gradient."""
    predictions: int
    """How many those are."""
    backend: str
    """Which backend of scan ran."""
    penalty: Tensor | float = 0.0
    """Added to the loss on the way back, and not reported."""
    state: tuple[Any, ...] | None = None
    """What the next batch starts from: tensors in (nested) tuples, detached. None for batches that stand alone."""
    rate: float = 1.0
    """A factor on the learning rate, for a batch that is a smaller sample than others."""


class Validation(NamedTuple):
    """How good a model is."""

    score: float
    """Decides which weights are kept; lower is better."""
    metrics: Metrics
    """By their names in metrics.jsonl, each beginning with valid_."""
    summary: str
    """The same for a person, in half a line."""


class Baseline(NamedTuple):
    """Something plain to beat."""

    name: str
    """Such as `6-gram`."""
    value: float
    """On the scale of the task's `curve`."""


class Batches(Protocol[BatchT_co]):
    """What is learned from, epoch by epoch; the batches of an epoch are drawn from (seed, epoch) alone."""

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[BatchT_co]:
        """One epoch without its first batches, the same each time."""

    def __len__(self) -> int:
        """How many there are in an epoch, or about so many."""


class Task(ABC, Generic[OptionsT, DataT, ModelT, BatchT]):
    """What is trained. One is made for each configuration; see the package's docstring for how to write one."""

    name: ClassVar[str]
    """As in --task: the name of its folder."""
    curve: ClassVar[str] = "valid_perplexity"
    """The metric that the screen draws over time, and the summary names."""
    unit: ClassVar[str] = "tokens"
    """What predictions are counted in."""
    verb: ClassVar[str] = "predict"
    """What one does with a trained model at the command line."""
    on_text: ClassVar[bool] = False
    """Whether it is measured on a running text, so that n-grams can stand beside it."""
    likelihood: ClassVar[bool] = True
    """Whether the loss is a mean negative log-likelihood, so that exp of it is a perplexity."""

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    @classmethod
    def settle(cls, options: OptionsT) -> OptionsT:
        """The options with everything decided that was left open, for this machine and these files."""
        return options.settled(str(pick_device(options.device)))

    @property
    def run_name(self) -> str:
        """What a run of it is called, if its user does not say."""
        texts = getattr(self.options, "texts", ())
        return as_file_name((Path(texts[0]).stem if texts else "") or self.name)

    @property
    def architecture(self) -> str:
        """What is trained, in a word."""
        if getattr(self.options, "recurrence", "hidden") == "output":
            return "output recurrence"
        return str(getattr(self.options, "cell", self.name))

    @abstractmethod
    def read(self, vocabs: Vocabs | None = None) -> DataT:
        """The data, with its `vocabs`: those given, or fitted on the training part."""

    @abstractmethod
    def describe(self, data: DataT) -> str:
        """The data in a line."""

    def baseline(self, data: DataT) -> Baseline | None:
        """The plainest thing worth beating, measured on the validation part."""
        return None

    @abstractmethod
    def new_model(self, vocabs: Vocabs) -> ModelT:
        """Fresh weights."""

    def check_size(self, vocabs: Vocabs) -> None:
        """Refuse what no memory of this machine holds, before any of it is made."""
        check_size(lambda: self.new_model(vocabs))

    @abstractmethod
    def batches(self, data: DataT) -> Batches[BatchT]:
        """What is learned from."""

    @abstractmethod
    def training_step(
        self, model: ModelT, batch: BatchT, state: tuple[Any, ...] | None, moment: Moment
    ) -> TrainingStep:
        """The loss of one batch; `state` is what the batch before left, None at the start of an epoch."""

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        """A loss above this means that training has diverged."""
        return math.inf

    @abstractmethod
    def validate(self, model: ModelT, data: DataT) -> Validation:
        """How good the model is on the validation part. It is in evaluation mode, and no gradient is kept."""

    def sample(self, model: ModelT, data: DataT) -> str:
        """Something to watch while it trains."""
        return ""

    @property
    def batch(self) -> int:
        """The batch's size, once options are settled."""
        batch = self.options.batch
        return self.options.cpu_batch if batch is None else batch


class Inputs:
    """What is to be predicted, each checked when its turn comes: a line, or an image's file or pixels."""

    def __init__(self, given: Iterable[Any], files: bool) -> None:
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise TextError(f"inputs come as a list of them, got {type(given).__name__} {shown(given)}")
        self.given, self.kinds = given, (str, Path, np.ndarray) if files else (str,)
        self.name = str(getattr(given, "name", "the table"))
        """Of the file that they come from, for messages."""

    def __iter__(self) -> Iterator[Any]:
        for one in self.given:
            if not isinstance(one, self.kinds):
                raise TextError(f"an input is a {self.kinds[0].__name__}, got {type(one).__name__} {shown(one)}")
            yield one


def source_name(lines: object) -> str:
    """Of the file that lines come from, where they say so."""
    return str(getattr(lines, "name", "the table"))


def file_names(texts: object) -> list[str]:
    """Of files: arrays and other data are no names."""
    given = [texts] if isinstance(texts, str | Path) else texts
    if not isinstance(given, Sequence) or not all(isinstance(name, str | Path) for name in given):
        kind = type(texts).__name__ if not isinstance(given, Sequence) else "a list of other things"
        raise OptionError(f"texts must name files or folders, got {kind}; arrays go into an .npz: numpy.savez")
    return [str(name) for name in given]


def as_file_name(words: str) -> str:
    return re.sub(r"[^\w.-]+", "-", words)


class Predictor(ABC, Generic[ModelT]):
    """A trained model for use, or several runs' as one: what `recur.fit` and `recur.load` return."""

    ensembles: ClassVar[bool] = False
    """Whether several runs can serve as one."""
    takes_lines: ClassVar[bool] = True
    """Whether each line is an input of its own; else they are one table."""
    takes_files: ClassVar[bool] = False
    """Whether an input is a file, such as an image, and no line."""

    def __init__(self, task: Task[Any, Any, ModelT, Any], runs: Sequence[Run], device: str = "auto") -> None:
        self.task, self.runs, self.run = task, tuple(runs), runs[0]
        self.device = pick_device(device)
        self.changed_text = False
        """Whether a text of the run may have been changed since it learned from it."""
        if len(runs) > 1 and not self.ensembles:
            raise OptionError(f"runs of the task {task.name} do not serve as one model; name one run")
        for other in runs[1:]:
            if other.task != self.run.task or other.vocabs != self.run.vocabs:
                raise OptionError(
                    f"{other.path} and {self.run.path} differ in task or vocabulary: they are not one model"
                )
        self.models = [self._load(run) for run in runs]

    def _load(self, run: Run) -> ModelT:
        task_of_run(run).check_size(run.vocabs)
        with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and then replaced
            model = cast(ModelT, task_of_run(run).new_model(run.vocabs))
        run.load_weights(model)
        return model.to(self.device).eval()

    @property
    def model(self) -> ModelT:
        """The network; the first, of several."""
        return self.models[0]

    @property
    def name(self) -> str:
        return " + ".join(str(run.path) for run in self.runs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(str(run.path)) for run in self.runs)})"

    def evaluate(self, texts: Sequence[str] | None = None, **options: Any) -> JsonObject:
        """Its figures on files, or on the run's own test part, which is refused where it was changed since."""
        texts = None if texts is None else file_names(texts)
        if not texts:
            self.find_texts("test" if getattr(self.task.options, "test", ()) else "texts")
        return self._evaluate(texts, **options)

    @abstractmethod
    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject: ...

    def find_texts(self, *parts: str) -> None:
        """Have the options name texts of the run where they are now; they must be as they were when it learned."""
        self.task.options = with_own_texts(self.run, self.task.options, parts, self.changed_text)

    def has_training_texts(self) -> bool:
        """Whether what it learned from is here, for something plainer to learn from too."""
        try:
            self.find_texts("texts", "valid")
        except RecurError:
            return False
        return True

    def predict(self, lines: Iterable[Any], **options: Any) -> Iterator[JsonObject]:
        """What it makes of each line: objects with at least `input` and `output`."""
        return self._predict(Inputs(lines, self.takes_files), **options)

    def _predict(self, lines: Iterable[Any], **options: Any) -> Iterator[JsonObject]:
        raise OptionError(f"{self.run.path} is a run of the task {self.task.name}, which predicts no lines")

    def use_products(self, products: str) -> None:
        """Have its recurrent layers read weights as `bfloat16` or `int8` from now on; as they are, if nothing."""
        layers = [layer for model in self.models for layer in model.modules() if isinstance(layer, Recurrent)]
        if not layers:
            raise OptionError(f"{self.name} has no recurrent layers whose weights could be read in fewer bits")
        for layer in layers:
            layer.products = products

    def refuse(self, options: JsonObject) -> None:
        """For options that this task's models have no use for."""
        for name in options:
            raise OptionError(f"--{name.replace('_', '-')} is not for the task {self.task.name}")
