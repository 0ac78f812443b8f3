"""Why training steps cannot be recorded as CUDA graphs: reasons that tasks share, each empty where it does not hold."""

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

from recur.data.text.stream import Share
from recur.models.options import RecurrenceOptions, SequenceOptions
from recur.nn.options import check_memory
from recur.options import Options
from recur.runs import Vocabs, check_precision, pick_device, pick_precision
from recur.tasks.common.options import DataOptions, TaskOptions, cell_of
from recur.utils.files import memory
from recur.utils.types import JsonObject, Metrics


def cpu_sampling_blocker(options: TaskOptions) -> str:
    """For tasks whose batches are all alike."""
    bptt = options.bptt if isinstance(options, SequenceOptions) else "full"
    return "" if bptt == "full" else f"--bptt {bptt} draws on the CPU what crosses time"


def variable_length_blocker(sizes: Iterable[int], options: TaskOptions) -> str:
    """For tasks whose sequences are padded: where all are as long, no step asks how long each is."""
    return "sequences are of several lengths" if len({*sizes}) > 1 else cpu_sampling_blocker(options)


def check_size(make: Callable[[], nn.Module]) -> None:
    """Refuse a network whose weights alone are more than this machine's memory."""
    check_memory(weight_bytes(make), memory())


def weight_bytes(make: Callable[[], nn.Module]) -> float:
    """Of all weights, which are made on torch's device of shapes without numbers: no memory, no random draws."""
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
    """Names in a task's vocabularies and of its network's parameters."""

    vocab: str = "vocab"
    """The vocabulary that begins with the language model's."""
    embedding: str = "embedding.weight"
    recurrent: str = "recurrent"
    """The module of the layers; none, if empty."""
    output: tuple[str, str] | None = None
    """The matrix V and the bias of a softmax over that vocabulary, where the network has one."""
    lines: bool = False
    """Whether sequences are lines that <bos> begins and <eos> ends, where a text has the end of a line."""
    token: str = "token"
    """The option that says what a token of that vocabulary is."""
    layers: str = "layers"
    """The option that says how many layers there are."""

    def depth(self, name: str) -> int | None:
        """Of a parameter: 0 for the embedding, 1 … for the layers above it, None for what no language model has."""
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
    """What a task reads: whatever it needs, and the vocabularies that a run keeps."""

    @property
    def vocabs(self) -> Vocabs: ...


class TrainingProgress(NamedTuple):
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
    weight: Tensor | None = None
    """What the loss is a mean over, where that is not the number of predictions: the weights of their classes, say.
    Parts of a batch on several processes count by it."""


class Validation(NamedTuple):
    """How good a model is."""

    score: float
    """Decides which weights are kept; lower is better."""
    metrics: Metrics
    """By their names in metrics.jsonl, each beginning with valid_."""
    summary: str
    """The same for a person, in half a line."""


class Baseline(NamedTuple):
    """Something plain to beat, measured on the validation part."""

    name: str
    """Such as `6-gram`."""
    value: float
    """On the scale of the task's `curve`."""
    metrics: Metrics = {}
    """Other figures of it, by the names that the task's own validation has."""


class Remark(NamedTuple):
    """Something worth saying of a trained model."""

    text: str
    """Such as `every output was cut`."""
    option: str = ""
    """What to try then, such as `--longest 200`."""
    kind: str = ""
    """What it is about, where something else depends on it: see verdict.py."""


class Batches(Protocol[BatchT_co]):
    """What is learned from, epoch by epoch; the batches of an epoch are drawn from (seed, epoch) alone."""

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[BatchT_co]:
        """One epoch without its first batches, the same each time."""

    def shared(self, share: Share) -> Batches[BatchT_co | None]:
        """The same batches, of which one of several processes has its rows; None where it has none."""

    def __len__(self) -> int:
        """How many there are in an epoch, or about so many."""


class Task(ABC, Generic[OptionsT, DataT, ModelT, BatchT]):
    """What is trained. One is made for each configuration; see the package's docstring for how to write one."""

    name: ClassVar[str]
    """As in --task: the name of its folder."""
    unit: ClassVar[str] = "tokens"
    """What predictions are counted in."""
    verb: ClassVar[str] = "predict"
    """What one does with a trained model at the command line."""
    on_text: ClassVar[bool] = False
    """Whether it is measured on a running text, so that n-grams can stand beside it."""
    places: ClassVar[PretrainedSlots | None] = None
    """Where the parts of a language model go in its network, if they can: for --from and --vectors."""
    sizes: ClassVar[tuple[str, ...]] = ()
    """Options that may follow from how fast this machine trains: see `sized`."""
    likelihood: ClassVar[bool] = True
    """Whether the loss is a mean negative log-likelihood, so that exp of it is a perplexity."""

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    @classmethod
    def settle(cls, options: OptionsT) -> OptionsT:
        """The options with everything decided that was left open, for this machine and these files."""
        device = pick_device(options.device)
        precision = options.precision or pick_precision(device, options.in_16_bits)
        check_precision(precision, device)
        return options.settled(str(device)).changed(precision=precision)

    @classmethod
    def settled_words(cls, before: OptionsT, after: OptionsT) -> str:
        """What of the settled options a user would like to hear of."""
        return ""

    @classmethod
    def sizes_itself(cls, asked: OptionsT) -> bool:
        """Whether options as they were asked for leave the network's size to what this machine can do in the budget."""
        return False

    def sized(self, asked: OptionsT, data: DataT, speed: Callable[[OptionsT], float]) -> tuple[JsonObject, str]:
        """What of the options follows from that, and how it is said. `speed` tries some options: predictions a second
        that are trained on."""
        return {}, ""

    @property
    def curve(self) -> str:
        """The metric that the screen draws over time, the summary names and baselines are compared by."""
        return "valid_perplexity"

    @property
    def run_name(self) -> str:
        """What a run of it is called, if its user does not say."""
        texts = self.options.texts if isinstance(self.options, DataOptions) else ()
        return as_file_name((Path(texts[0]).stem if texts else "") or self.name)

    @property
    def architecture(self) -> str:
        """What is trained, in a word."""
        options: Options = self.options
        if isinstance(options, RecurrenceOptions) and options.recurrence == "output":
            return "output recurrence"
        return cell_of(self.options) or self.name

    @abstractmethod
    def read(self, vocabs: Vocabs | None = None) -> DataT:
        """The data, with its `vocabs`: those given, or fitted on the training part."""

    @abstractmethod
    def describe(self, data: DataT) -> str:
        """The data in a line."""

    def baselines(self, data: DataT) -> Iterable[Baseline]:
        """Plain models worth beating, the plainest first; each takes seconds."""
        return ()

    def remarks(self, metrics: Metrics) -> Iterable[Remark]:
        """What this task says of the figures of a trained model (their names without valid_), the most important
        first."""
        return ()

    @abstractmethod
    def new_model(self, vocabs: Vocabs) -> ModelT:
        """Fresh weights."""

    def start(self, model: ModelT, data: DataT) -> None:
        """What fresh weights take from the data before the first step, such as its mean and deviation."""

    def check_size(self, vocabs: Vocabs) -> None:
        """Refuse what no memory of this machine holds, before any of it is made."""
        check_size(lambda: self.new_model(vocabs))

    @abstractmethod
    def batches(self, data: DataT) -> Batches[BatchT]:
        """What is learned from."""

    @abstractmethod
    def training_step(
        self, model: ModelT, batch: BatchT, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        """The loss of one batch; `state` is what the batch before left, None at the start of an epoch."""

    def unrecordable(self, data: DataT) -> str:
        """Why training steps on this data cannot be recorded and replayed as CUDA graphs; nothing where they can:
        batches are named tuples of few shapes, those of a shape are as many predictions, and a step asks nothing of
        the device and copies nothing to it."""
        return f"batches of the task {self.name} are of many shapes"

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        """A loss above this means that training has diverged."""
        return math.inf

    @abstractmethod
    def validate(self, model: ModelT, data: DataT) -> Validation:
        """How good the model is on the validation part. It is in evaluation mode, and no gradient is kept."""

    def measured(self, data: DataT) -> int:
        """How many examples the validation part has, of which some can be left out; 0 where none can."""
        return len(getattr(data, "valid", ()))

    def thinned(self, data: DataT, every: int) -> DataT:
        """The same data with one in `every` of its validation examples: of all that is a list named valid…"""
        if every == 1:
            return data
        parts = {name: part for name, part in vars(data).items() if name.startswith("valid") and isinstance(part, list)}
        return replace(data, **{name: part[::every] for name, part in parts.items()})  # type: ignore[type-var]

    def sample(self, model: ModelT, data: DataT) -> str:
        """Something to watch while it trains."""
        return ""

    @property
    def batch(self) -> int:
        """The batch's size, once options are settled."""
        batch = self.options.batch
        return self.options.cpu_batch if batch is None else batch


def as_file_name(words: str) -> str:
    return re.sub(r"[^\w.-]+", "-", words)
