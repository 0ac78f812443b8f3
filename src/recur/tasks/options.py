"""Options that tasks share, in groups. A task's own dataclass inherits those it reads, and sets its own defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from recur.errors import OptionError
from recur.models.options import DecoderOptions
from recur.options import (
    Batch,
    BelowOne,
    Count,
    Device,
    Natural,
    NonNegative,
    Options,
    Positive,
    Range,
    Search,
    Seed,
    TextFormat,
    Threads,
)
from recur.tasks.forms import parse_fold, parse_schedule
from recur.tasks.teacher import Teacher

GPU_FACTOR = 4
"""A step of these networks on a GPU is bound by the launches of its kernels: so much larger a batch takes as long."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Options):
    title = "Optimisation"

    batch: Batch | None = None
    """Examples in a batch; if not given, the task's own number, a larger one on a GPU."""

    optimizer: Literal["adam", "adamw", "sgd", "asgd"] = "adamw"
    """asgd is SGD whose average is taken once validation stops improving."""

    rate: Positive = 0.003
    """Learning rate."""

    schedule: Annotated[str, TextFormat(parse_schedule)] = "cosine"
    """constant, step:γ:after (× γ an epoch after so many), cosine (to zero), flat:cut (the same behind that share of
    the budget), slanted:cut (up over it, then down: Howard and Ruder 2018), plateau:γ (× γ when stuck), nonmono:n."""

    warmup: Natural = 50
    """Steps over which the rate rises from zero."""

    momentum: BelowOne | None = None
    """How much of a step is the step before: sgd's, or β₁ of adam and adamw. If not given, 0, and 0.9 for these."""

    weight_decay: NonNegative | None = None
    """Pull weights towards zero; if not given, the task's own with adamw, else 0."""

    clip: NonNegative = 1.0
    """Bound on the gradient's norm; 0 is none."""

    clip_value: NonNegative = 0.0
    """Bound on each of its entries; 0 is none."""

    precision: Literal["float32", "tf32", "bfloat16", "float16"] | None = None
    """What matrix products read, while training and measuring: float32; tf32, a GPU's shorter float32; bfloat16 or
    float16 under torch.autocast, the latter with its loss scaled. Weights and sums are float32 in all of them. If not
    given, the fastest that the device has and the task's figures bear."""

    accumulate: Count = 1
    """Batches to add up before a step."""

    average: BelowOne = 0.0
    """Measure and keep the average of the weights over the last steps, about 1/(1 − this) of them; 0 is none."""

    on_nan: Literal["stop", "skip"] = "stop"
    """What to do with a batch whose loss is not a number."""


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(Options):
    title = "Budget"

    minutes: Positive | None = None
    """Stop after so many minutes; if no budget is given, the task's own number."""

    epochs: Positive | None = None
    """Stop after so many passes over the data."""

    steps: Count | None = None
    """Stop after so many steps."""

    patience: Natural = 0
    """Stop when so many measurements bring nothing better; 0 never."""

    measure: NonNegative = 0.0
    """Measure on the validation part every so many epochs; 0 is ten times in a run: on some of its examples where all
    would take more than a fifth of the minutes, and on all of them at the end."""

    keep: Literal["best", "last"] = "best"
    """Which weights: those that were best on the validation part, or the last ones, which need none: for all of the
    data to learn from, with a budget that was found on a part of it."""

    checkpoint: NonNegative = 30.0
    """Seconds between checkpoints to resume from."""

    baseline: bool = True
    """Measure plain models first, to have something to beat."""


@dataclass(frozen=True, kw_only=True)
class MachineOptions(Options):
    title = "Machine"

    device: Device = "auto"
    """cpu, cuda, cuda:N, or auto: a GPU where there is one."""

    graph: Literal["auto", "on", "off"] = "auto"
    """Record training steps as CUDA graphs and replay them, by one launch each: on a GPU, for batches of few shapes."""

    threads: Threads = 0
    """For the CPU; 0 takes what is fastest now, and the run keeps it. Another number of threads rounds otherwise."""

    compress: Literal["none", "bfloat16"] = "none"
    """Of several processes (torchrun): how gradients travel; bfloat16 is half the bytes, and rounds."""

    seed: Seed = 0
    """Where random numbers start; the same seed and threads give the same numbers."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions(TrainingOptions, BudgetOptions, MachineOptions):
    """What every task reads."""

    cpu_batch: ClassVar[int] = 32
    """The batch of a run that says none, on the CPU; on a GPU GPU_FACTOR times as much."""
    default_minutes: ClassVar[float] = 2.0
    default_epochs: ClassVar[float | None] = None
    """The budget of a run that says none is both: little data is not read a thousand times, much ends by the clock."""
    search: ClassVar[Mapping[str, Search]] = {}
    """What `recur sweep` tries: options worth a search, and where good values of them lie."""
    adamw_decay: ClassVar[float] = 0.0
    """The weight decay of a run with adamw that says none."""
    in_16_bits: ClassVar[bool] = False
    """Whether its figures are as good with products of 16 bits, so that a run that says nothing has them."""
    by_token: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Other defaults, where tokens are of a kind; `epochs` among them stands for `default_epochs`."""

    def settled(self, device: str) -> Self:
        """What was left open decided, for a device such as cpu or cuda:1, so that a run can keep it."""
        fields: dict[str, Any] = {"device": device}
        if self.batch is None:
            fields["batch"] = self.cpu_batch * (1 if device == "cpu" else GPU_FACTOR)
        if self.minutes is None and self.epochs is None and self.steps is None:
            fields |= {"minutes": self.default_minutes, "epochs": self.own_epochs}
        if self.weight_decay is None:  # what adamw takes from the weights themselves, others would add to the gradient
            fields["weight_decay"] = self.adamw_decay if self.optimizer == "adamw" else 0.0
        return self.changed(**fields)

    @property
    def own_epochs(self) -> float | None:
        """The epochs of a run that says none."""
        token = str(getattr(self, "token", None))
        epochs: float | None = self.by_token.get(token, {}).get("epochs", self.default_epochs)
        return getattr(self, "carried", {}).get("epochs", epochs) if getattr(self, "from_", ()) else epochs

    def for_token(self, token: str) -> Self:
        """With the defaults for tokens of a kind."""
        defaults = self.by_token.get(token, {})
        return self.with_defaults(**{name: value for name, value in defaults.items() if name != "epochs"})


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """For tasks that learn from files."""

    title = "Data"

    reads: ClassVar[str] = "text"
    """What those files hold: text, labelled, pairs, tagged, trees, table or images (recur/data/frames.py)."""

    texts: tuple[str, ...] = ()
    """What to learn from: files or folders; a path in a configuration file is relative to it."""


@dataclass(frozen=True, kw_only=True)
class SplitOptions(TextOptions):
    """… and hold parts of them out."""

    title = "Data"

    valid: tuple[str, ...] = ()
    """Measure on this; a part of `texts` held out, if not given. Repeat it for several files."""

    test: tuple[str, ...] = ()
    """Measured once, by `recur eval`; a part of `texts` held out, if not given."""


@dataclass(frozen=True, kw_only=True)
class FoldOptions(SplitOptions):
    """… or each of several parts in turn."""

    title = "Data"

    fold: Annotated[str, TextFormat(parse_fold)] = ""
    """Cross-validation: 3/10 holds the third of ten parts of `texts` out as the test, and a tenth of the rest to
    validate on. `--folds 10` trains on all ten."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fold and self.test:
            raise OptionError(f"--fold {self.fold} is the test part: leave --test out")


Token = Literal["char", "word", "subword"]


@dataclass(frozen=True, kw_only=True)
class VocabOptions(Options):
    """What counts as a token."""

    title = "Tokens"

    punctuation: bool = False
    """Words: punctuation marks are tokens too, and each Chinese character is one."""

    lower: bool = False
    """Words: drop case."""

    min_freq: Count = 1
    """Tokens seen less often in training are unknown."""

    max_size: Count | None = None
    """Keep this many tokens at most, the four special ones included."""

    pieces: Count = 2000
    """Subwords: how many pieces sentencepiece learns."""

    def vocab_options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in VocabOptions.names()}


@dataclass(frozen=True, kw_only=True)
class CarryOptions(Options):
    """What a network begins with, where that is not drawn."""

    title = "Carry over"

    carried: ClassVar[Mapping[str, Any]] = {}
    """Other defaults with --from; `epochs` among them stands for `default_epochs`."""

    from_: tuple[str, ...] = ()
    """Begin with the vocabulary, embedding and layers of a language model's run; for a network of both directions, of
    one or two of them, the second trained with --direction backward."""

    unfreeze: BelowOne = 0.0
    """With --from: the new layers learn first, and after each such share of the budget one carried layer more, from the
    top; 0 is all of them from the start."""

    layer_rate: Annotated[float, Range("lie in 1 … 1000", 1, 1000)] = 1.0
    """With --from: each layer learns at the rate of the one above it, divided by this."""

    vectors: str | None = None
    """Begin with word vectors from a file: GloVe's, word2vec's or fastText's text, or a .gz of one."""

    vectors_extra: Natural = 0
    """With --vectors: know so many of the file's first tokens too, though the training text has none of them."""

    freeze_vectors: bool = False
    """With --vectors or --from: the vectors of tokens stay as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.from_ and self.vectors is not None:
            raise OptionError("--from and --vectors both bring vectors of tokens: take one of them")

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if not self.from_:
            found |= dict.fromkeys(("unfreeze", "layer_rate"), "is for --from, which is not given")
        if self.vectors is None:
            found["vectors_extra"] = "is for --vectors, which is not given"
        if not self.from_ and self.vectors is None:
            found["freeze_vectors"] = "is for --vectors or --from, and neither is given"
        return found


@dataclass(frozen=True, kw_only=True)
class WritingOptions(TaskOptions, SplitOptions, VocabOptions, DecoderOptions, CarryOptions):
    """For tasks that write."""

    title = "Decoder"

    teacher: Annotated[str, TextFormat(Teacher.parse)] = "always"
    """Teacher forcing: always, never, constant:p, linear:a:b, exponential:k, sigmoid:k; ,sequence mixes sequences."""

    smoothing: BelowOne = 0.0
    """Label smoothing: this much of the target's probability goes to all symbols alike."""
