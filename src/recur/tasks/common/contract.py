"""The contract of a task: options, data, model, batches, loss, evaluation and baselines. The trainer calls it."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from recur.data.reading import Reading
from recur.data.text.stream import ProcessShard
from recur.models.options import RecurrenceOptions, SequenceOptions
from recur.nn.options import check_memory
from recur.options import Options
from recur.runs import Vocabs, check_precision, pick_device, pick_precision
from recur.tasks.common.options import DataOptions, TaskOptions, cell_of
from recur.tasks.common.splits import common_encoding, reading_of
from recur.utils.files import memory
from recur.utils.types import JsonObject, Metrics


def cpu_sampling_blocker(options: TaskOptions) -> str:
    """Return why CUDA graphs cannot be used by a task whose batches all have one shape; empty if they can."""
    bptt = options.bptt if isinstance(options, SequenceOptions) else "full"
    return "" if bptt == "full" else f"--bptt {bptt} draws on the CPU what crosses time"


def variable_length_blocker(sizes: Iterable[int], options: TaskOptions) -> str:
    """Return why CUDA graphs cannot be used by a task with padded sequences; empty if all have one length."""
    return "sequences are of several lengths" if len({*sizes}) > 1 else cpu_sampling_blocker(options)


def check_size(make: Callable[[], nn.Module]) -> None:
    """Raise an error if the weights of a network need more memory than this machine has."""
    check_memory(weight_bytes(make), memory())


def weight_bytes(make: Callable[[], nn.Module]) -> float:
    """Return the number of bytes of all weights.

    The network is built on the meta device, so that no memory is allocated and no random number is drawn.
    """
    try:
        with torch.device("meta"):
            made = make()
    except RuntimeError as error:  # one matrix has more bytes than 64 bits count
        sizes = re.search(r"overflowed with sizes=\[([0-9, ]+)\]", str(error))
        if sizes is None:
            raise
        return 4.0 * math.prod(float(size) for size in sizes[1].split(","))
    return float(sum(p.numel() * p.element_size() for p in (*made.parameters(), *made.buffers())))


class PretrainedSlots(NamedTuple):
    """Names of the vocabularies and parameters of a network that a language model can initialise."""

    vocab: str = "vocab"
    """Name of the vocabulary that starts with the tokens of the language model."""
    embedding: str = "embedding.weight"
    recurrent: str = "recurrent"
    """Name of the module of recurrent layers; empty if none is initialised."""
    output: tuple[str, str] | None = None
    """Names of the output matrix V and its bias, if the network has a softmax over that vocabulary."""
    lines: bool = False
    """Whether sequences are lines between <bos> and <eos>, where a text has line ends."""
    token: str = "token"
    """Name of the option that sets the kind of token of that vocabulary."""
    layers: str = "num_layers"
    """Name of the option that sets the number of layers."""

    def depth(self, name: str) -> int | None:
        """Return the depth of a parameter: 0 for the embedding, 1 … for the layers, None for new parameters."""
        if name == self.embedding:
            return 0
        if not self.recurrent or not name.startswith(f"{self.recurrent}."):
            return None
        layer = re.search(r"_l(\d+)(_reverse)?$", name)
        if layer is not None:
            return int(layer[1]) + 1
        return 1 if ".input_mlp." in name else None


OptionsT = TypeVar("OptionsT", bound=TaskOptions)
DataT = TypeVar("DataT", bound="TaskData")
ModelT = TypeVar("ModelT", bound=nn.Module)
BatchT = TypeVar("BatchT")
BatchT_co = TypeVar("BatchT_co", covariant=True)


class TaskData(Protocol):
    """Data of a task: whatever the task needs, and the vocabularies that the run folder stores."""

    @property
    def vocabs(self) -> Vocabs: ...


class TrainingProgress(NamedTuple):
    """Position in a training run, for schedules."""

    step: int
    epoch: int
    progress: float
    """Share of the budget that is used, 0 … 1."""


class TrainingStep(NamedTuple):
    """Loss of one batch."""

    loss: Tensor
    """Mean loss over the predictions of the batch: a scalar with its gradient."""
    predictions: int
    """Number of predictions in the batch."""
    backend: str
    """Backend of scan that ran."""
    penalty: Tensor | float = 0.0
    """Term that is added to the loss for the backward pass and is not reported."""
    state: tuple[Any, ...] | None = None
    """Initial state of the next batch: detached tensors in (nested) tuples. None for independent batches."""
    rate: float = 1.0
    """Factor on the learning rate, for a batch that is smaller than others."""
    weight: Tensor | None = None
    """Denominator of the mean loss where it is not the number of predictions, such as the sum of class weights.

    Parts of a batch on several processes are averaged with these weights.
    """


class Validation(NamedTuple):
    """Result of an evaluation on the validation set."""

    score: float
    """Value that selects the weights to keep; lower is better."""
    metrics: Metrics
    """Metrics by their names in metrics.jsonl, each with the prefix valid_."""
    summary: str
    """Metrics as a short phrase for the screen."""


class Baseline(NamedTuple):
    """Simple model, evaluated on the validation set, that the network should beat."""

    name: str
    """Name, such as `6-gram`."""
    value: float
    """Value of the task's metric `curve`."""
    metrics: Metrics = {}
    """Other metrics, by the names that the task's own validation uses."""


class Remark(NamedTuple):
    """Sentence about a trained model."""

    text: str
    """Sentence without a full stop, such as `every output was truncated`."""
    option: str = ""
    """Option to try, such as `--max-length 200`."""
    kind: str = ""
    """Kind of the remark, for code that depends on it: see verdict.py."""


class Batches(Protocol[BatchT_co]):
    """Training batches by epoch. The batches of an epoch depend on (seed, epoch) alone."""

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[BatchT_co]:
        """Yield the batches of an epoch without the first `skip`; the same in each call."""

    def shared(self, share: ProcessShard) -> Batches[BatchT_co | None]:
        """Return the same batches with the rows of one of several processes; None for a batch without such rows."""

    def __len__(self) -> int:
        """Return the number of batches in an epoch, possibly approximate."""


class Task(ABC, Generic[OptionsT, DataT, ModelT, BatchT]):
    """One kind of problem with its options. See the docstring of recur.tasks for how to write a task."""

    name: ClassVar[str]
    """Name of the task in --task: the name of its folder."""
    unit: ClassVar[str] = "tokens"
    """Unit in which predictions are counted."""
    verb: ClassVar[str] = "predict"
    """Command that uses a trained model."""
    on_text: ClassVar[bool] = False
    """Whether the task is evaluated on running text, so that n-grams are comparable."""
    places: ClassVar[PretrainedSlots | None] = None
    """Parameters that a language model can initialise, if any: for --from and --vectors."""
    sizes: ClassVar[tuple[str, ...]] = ()
    """Options that can be chosen from the training speed of this machine: see `sized`."""
    likelihood: ClassVar[bool] = True
    """Whether the loss is a mean negative log-likelihood, so that its exponential is a perplexity."""

    def __init__(self, options: OptionsT) -> None:
        self.options = options
        self.reading = Reading()
        """Report of the latest `read`: encodings, and rows that were left out."""

    def new_reading(self) -> Reading:
        """Return the settings of readers for one reading of the data, whose report is kept."""
        given: Options = self.options
        if isinstance(given, DataOptions):
            self.reading = reading_of(given)
        return self.reading

    @classmethod
    def settle(cls, options: OptionsT) -> OptionsT:
        """Return the options with all open choices made, for this machine and these files."""
        given: Options = options
        if isinstance(given, DataOptions) and not given.encoding:
            options = options.changed(encoding=common_encoding(given))
        device = pick_device(options.device)
        precision = options.precision or pick_precision(device, options.in_16_bits)
        check_precision(precision, device)
        return options.settled(str(device)).changed(precision=precision)

    @classmethod
    def settled_words(cls, before: OptionsT, after: OptionsT) -> str:
        """Return a message about the choices that `settle` made; empty if there is nothing to report."""
        return ""

    @classmethod
    def sizes_itself(cls, asked: OptionsT) -> bool:
        """Return True if the requested options leave the size of the network to the speed of this machine."""
        return False

    def sized(self, asked: OptionsT, data: DataT, speed: Callable[[OptionsT], float]) -> tuple[JsonObject, str]:
        """Return the options that follow from the training speed, and a message about them.

        `speed` measures some options: the number of predictions per second in training.
        """
        return {}, ""

    @property
    def curve(self) -> str:
        """Metric that the screen plots, the summary names and baselines are compared by."""
        return "valid_perplexity"

    @property
    def run_name(self) -> str:
        """Default name of a run."""
        texts = self.options.texts if isinstance(self.options, DataOptions) else ()
        return as_file_name((Path(texts[0]).stem if texts else "") or self.name)

    @property
    def architecture(self) -> str:
        """Name of the network in one word."""
        options: Options = self.options
        if isinstance(options, RecurrenceOptions) and options.recurrence == "output":
            return "output recurrence"
        return cell_of(self.options) or self.name

    @abstractmethod
    def read(self, vocabs: Vocabs | None = None) -> DataT:
        """Read the data, with the given vocabularies or with vocabularies fitted to the training set."""

    @abstractmethod
    def describe(self, data: DataT) -> str:
        """Describe the data in one line."""

    def baselines(self, data: DataT) -> Iterable[Baseline]:
        """Yield the baselines, simplest first; each takes seconds."""
        return ()

    def remarks(self, metrics: Metrics) -> Iterable[Remark]:
        """Yield remarks about the metrics of a trained model (names without valid_), most important first."""
        return ()

    @abstractmethod
    def new_model(self, vocabs: Vocabs) -> ModelT:
        """Return a model with fresh weights."""

    def start(self, model: ModelT, data: DataT) -> None:
        """Initialise parameters from the data before the first step, such as means and deviations."""

    def check_size(self, vocabs: Vocabs) -> None:
        """Raise an error if the model does not fit into the memory of this machine, before it is allocated."""
        check_size(lambda: self.new_model(vocabs))

    @abstractmethod
    def batches(self, data: DataT) -> Batches[BatchT]:
        """Return the training batches."""

    @abstractmethod
    def training_step(
        self, model: ModelT, batch: BatchT, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        """Compute the loss of one batch. `state` is the state that the previous batch returned; None for the first."""

    def unrecordable(self, data: DataT) -> str:
        """Return why training steps on this data cannot be captured as CUDA graphs; empty if they can.

        Capturing needs batches that are named tuples of few shapes, a number of predictions that depends on the shape
        alone, and steps that neither synchronise with the device nor copy to it.
        """
        return f"batches of the task {self.name} are of many shapes"

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        """Return the loss above which training counts as diverged."""
        return math.inf

    @abstractmethod
    def validate(self, model: ModelT, data: DataT) -> Validation:
        """Evaluate the model on the validation set. The model is in evaluation mode, without gradients."""

    def measured(self, data: DataT) -> int:
        """Return the number of validation examples, if some of them can be left out; else 0."""
        return len(getattr(data, "valid", ()))

    def thinned(self, data: DataT, every: int) -> DataT:
        """Return the data with one in `every` validation examples: of all lists whose name starts with valid."""
        if every == 1:
            return data
        parts = {name: part for name, part in vars(data).items() if name.startswith("valid") and isinstance(part, list)}
        return replace(data, **{name: part[::every] for name, part in parts.items()})  # type: ignore[type-var]

    def sample(self, model: ModelT, data: DataT) -> str:
        """Return some outputs to print during training."""
        return ""

    @property
    def batch(self) -> int:
        """Batch size, once options are settled."""
        batch = self.options.batch_size
        return self.options.cpu_batch if batch is None else batch


def as_file_name(words: str) -> str:
    return re.sub(r"[^\w.-]+", "-", words)
