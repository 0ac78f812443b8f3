"""Options that tasks share, in groups. The options of a task inherit the groups that it reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self, TypeVar, runtime_checkable

from recur.errors import OptionError, TextError, shown
from recur.models.options import DecoderOptions, NetworkOptions, ReaderOptions
from recur.options import (
    Batch,
    BelowOne,
    Count,
    Device,
    Layers,
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

if TYPE_CHECKING:
    from torch import Tensor


def parse_schedule(spec: str) -> tuple[str, list[float]]:
    """Return the name of a learning rate schedule and its numbers."""
    name, *written = spec.split(":")
    takes = {"constant": (0,), "cosine": (0,), "slanted": (0, 1), "flat": (1,), "step": (2,)}
    takes |= {"plateau": (1,), "nonmono": (1,)}
    try:
        numbers = [float(number) for number in written]
    except ValueError:
        numbers = [math.nan]
    whole = name != "nonmono" or all(n == int(n) for n in numbers if math.isfinite(n))
    below = name not in ("slanted", "flat") or all(n < 1 for n in numbers)
    if len(numbers) not in takes.get(name, ()) or not all(0 < n < math.inf for n in numbers) or not whole or not below:
        raise OptionError(
            f"schedule {shown(spec)} is not one of: constant, cosine, flat:cut, slanted[:cut], step:γ:after, "
            "plateau:γ, nonmono:n (numbers > 0, cut < 1, n whole)"
        )
    return name, numbers


def parse_fold(spec: str) -> tuple[int, int]:
    """Parse `3/10` into the fold and the number of folds; an empty string is (0, 1)."""
    if not spec:
        return 0, 1
    k, _, n = spec.partition("/")
    if not (k.isdecimal() and n.isdecimal() and len(n) < 6 and 1 <= int(k) <= int(n) and int(n) > 1):
        raise OptionError(f"fold must be such as 3/10, the third of ten, got {shown(spec)}")
    return int(k), int(n)


TEACHER_FORCING_FORMS = (
    "always, never, constant:p, linear:a:b, exponential:k (k < 1), sigmoid:k (k ≥ 1); ,sequence may follow"
)


@dataclass(frozen=True)
class TeacherForcing:
    """Teacher forcing: how often a decoder reads the target instead of its own last output.

        always, never         at every step, or at none (free running: each step reads the likeliest symbol)
        constant:p            with probability p
        linear:a:b            p falls linearly from a to b over the run
        exponential:k         p = k^i at training step i, k < 1
        sigmoid:k             p = k / (k + exp(i / k)), the inverse sigmoid, k ≥ 1

    The last three are from Bengio et al., Scheduled sampling, 2015. Each step of each sequence is drawn independently;
    with `,sequence`, as in `linear:1:0.5,sequence`, one draw decides for a whole sequence.
    """

    kind: str
    numbers: tuple[float, ...] = ()
    whole: bool = False
    """Whether one draw decides for a whole sequence."""

    @staticmethod
    def parse(spec: str) -> TeacherForcing:
        form, _, per = spec.partition(",")
        kind, *written = form.split(":")
        try:
            numbers = tuple(float(number) for number in written)
        except ValueError:
            numbers = (math.nan,)
        takes = {"always": 0, "never": 0, "constant": 1, "linear": 2, "exponential": 1, "sigmoid": 1}
        sound = all(0 <= n <= 1 for n in numbers) if kind != "sigmoid" else all(1 <= n < math.inf for n in numbers)
        if len(numbers) != takes.get(kind, -1) or not sound or per not in ("", "sequence", "step"):
            raise OptionError(f"teacher {shown(spec)} is not one of: {TEACHER_FORCING_FORMS}")
        return TeacherForcing(kind, numbers, per == "sequence")

    def probability(self, step: int, progress: float) -> float:
        """Return the probability of reading the target at a training step; `progress` is 0 … 1."""
        if self.kind in ("always", "never"):
            return float(self.kind == "always")
        k = self.numbers[0]
        if self.kind == "linear":
            return k + (self.numbers[1] - k) * min(progress, 1.0)
        if self.kind == "exponential":
            return float(k**step)
        if self.kind == "sigmoid":
            return k / (k + math.exp(min(step / k, 700.0)))
        return k

    def draw(self, rows: int, steps: int, step: int, progress: float) -> Tensor | None:
        """Draw where the target is read: (rows, steps), bool, on the CPU; None means everywhere."""
        import torch  # options are parsed without it

        p = self.probability(step, progress)
        if p >= 1:
            return None
        return (torch.rand(rows, 1 if self.whole else steps) < p).expand(rows, steps)


def parse_encoding(written: str) -> str:
    """Return the codec name of an encoding."""
    from recur.data.encodings import check_encoding

    try:
        return check_encoding(written)
    except TextError as error:
        raise OptionError(str(error)) from None


def parse_delimiter(written: str) -> str:
    """Return a delimiter as a character."""
    from recur.data.reading import parse_delimiter as parse

    try:
        return parse(written)
    except TextError as error:
        raise OptionError(str(error)) from None


GPU_FACTOR = 4
"""Factor of the batch size on a GPU, where kernel launches limit these networks."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Options):
    title = "Optimisation"

    batch_size: Batch | None = None
    """Examples per batch; default: the task's own number, larger on a GPU."""

    optimizer: Literal["adam", "adamw", "sgd", "asgd"] = "adamw"
    """Optimizer; asgd is SGD that averages the weights once validation stops improving."""

    lr: Positive = 0.003
    """Learning rate."""

    schedule: Annotated[str, TextFormat(parse_schedule)] = "cosine"
    """Learning rate schedule: constant; step:γ:after (× γ per epoch after so many epochs); cosine (to zero); flat:f
    (constant for the fraction f of the budget, then to zero); slanted:f (rising for the fraction f, then falling;
    Howard and Ruder 2018); plateau:γ (× γ without improvement); nonmono:n."""

    warmup_steps: Natural = 50
    """Number of steps over which the learning rate rises from zero."""

    momentum: BelowOne | None = None
    """Momentum of sgd, or β₁ of adam and adamw; default: 0 for sgd, 0.9 for the others."""

    weight_decay: NonNegative | None = None
    """Weight decay; default: the task's own value with adamw, else 0."""

    grad_clip: NonNegative = 1.0
    """Maximum norm of the gradient; 0: no limit."""

    grad_clip_value: NonNegative = 0.0
    """Maximum absolute value of each entry of the gradient; 0: no limit."""

    precision: Literal["float32", "tf32", "bfloat16", "float16"] | None = None
    """Precision of matrix products in training and evaluation: float32; tf32 (NVIDIA GPUs); bfloat16 or float16 under
    torch.autocast, float16 with loss scaling. Weights and sums stay float32. Default: the fastest on the device without
    loss of quality."""

    gradient_accumulation_steps: Count = 1
    """Number of batches per optimizer step."""

    average: BelowOne = 0.0
    """Evaluate and keep the exponential moving average of the weights with this decay, over about the last 1/(1 −
    decay) steps; 0: no average."""

    on_nan: Literal["stop", "skip"] = "stop"
    """Action for a batch whose loss is not a number."""


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(Options):
    title = "Budget"

    minutes: Positive | None = None
    """Stop after this many minutes; default, without any budget: the task's own number."""

    epochs: Positive | None = None
    """Stop after this many epochs."""

    steps: Count | None = None
    """Stop after this many steps."""

    patience: Natural = 0
    """Stop after this many evaluations without improvement; 0: never."""

    eval_every: NonNegative = 0.0
    """Epochs between evaluations on the validation set. 0: ten evaluations per run, on a part of the validation set if
    all of it would take more than a fifth of the budget, and on all of it at the end."""

    keep: Literal["best", "last"] = "best"
    """Weights to keep: best on the validation set, or last. With last, all data can be used for training, with a budget
    found before."""

    checkpoint_every: NonNegative = 30.0
    """Seconds between checkpoints for `recur resume`."""

    baseline: bool = True
    """Train and evaluate baselines first."""


@dataclass(frozen=True, kw_only=True)
class MachineOptions(Options):
    title = "Machine"

    device: Device = "auto"
    """Device: cpu, cuda, cuda:N, or auto (a GPU if there is one)."""

    graph: Literal["auto", "on", "off"] = "auto"
    """Capture training steps as CUDA graphs and replay them; for GPUs and batches of few different shapes."""

    threads: Threads = 0
    """Number of CPU threads; 0 measures the fastest number, which the run then keeps. Another number rounds
    differently."""

    compress: Literal["none", "bfloat16"] = "none"
    """Data type of gradients that are sent between processes (torchrun); bfloat16 halves the bytes."""

    seed: Seed = 0
    """Random seed; the same seed and number of threads give the same numbers."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions(TrainingOptions, BudgetOptions, MachineOptions):
    """Options of every task."""

    cpu_batch: ClassVar[int] = 32
    """Default batch size on the CPU; on a GPU it is GPU_FACTOR times as large."""
    default_minutes: ClassVar[float] = 2.0
    default_epochs: ClassVar[float | None] = None
    """Default budget together with `default_minutes`: small data stops by epochs, large data by time."""
    search: ClassVar[Mapping[str, Search]] = {}
    """Search space of `recur sweep`."""
    adamw_decay: ClassVar[float] = 0.0
    """Default weight decay with adamw."""
    in_16_bits: ClassVar[bool] = False
    """Whether 16-bit matmuls keep the quality, so that they are the default where the device has them."""
    by_token: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Defaults that depend on the kind of token; `epochs` replaces `default_epochs`."""

    def settled(self, device: str) -> Self:
        """Return the options with all open choices made for a device such as cpu or cuda:1."""
        fields: dict[str, Any] = {"device": device}
        if self.batch_size is None:
            fields["batch_size"] = self.cpu_batch * (1 if device == "cpu" else GPU_FACTOR)
        if self.minutes is None and self.epochs is None and self.steps is None:
            fields |= {"minutes": self.default_minutes, "epochs": self.own_epochs}
        if self.weight_decay is None:  # what adamw takes from the weights themselves, others would add to the gradient
            fields["weight_decay"] = self.adamw_decay if self.optimizer == "adamw" else 0.0
        return self.changed(**fields)

    @property
    def own_epochs(self) -> float | None:
        """Default number of epochs."""
        token = str(self.token) if isinstance(self, TokenOptions) else ""
        epochs: float | None = self.by_token.get(token, {}).get("epochs", self.default_epochs)
        return self.carried.get("epochs", epochs) if isinstance(self, WarmStartOptions) and self.from_ else epochs

    def for_token(self, token: str) -> Self:
        """Return the options with the defaults for a kind of token."""
        defaults = self.by_token.get(token, {})
        return self.with_defaults(**{name: value for name, value in defaults.items() if name != "epochs"})


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """Options of tasks that read files."""

    title = "Data"

    reads: ClassVar[str] = "text"
    """What those files hold: text, labelled, pairs, tagged, trees, table or images (recur/data/frames.py)."""

    texts: tuple[str, ...] = ()
    """Training files or folders; paths in a configuration file are relative to that file."""

    encoding: Annotated[str, TextFormat(parse_encoding)] = ""
    """Encoding of text files, such as gb18030, big5, cp1252 or shift_jis; if not given, it is detected."""

    on_bad_rows: Literal["error", "skip", "warn"] = "warn"
    """Rows that cannot be used, such as an empty text: stop, leave them out, or leave them out and name the first."""

    def paths(self, part: str) -> tuple[str, ...]:
        """Return the paths of a part of the data: texts, valid or test; empty if none is given."""
        return self.texts if part == "texts" else ()


@dataclass(frozen=True, kw_only=True)
class TextColumnOptions(DataOptions):
    """Options of tasks that read the texts of a table."""

    title = "Data"

    text: str = ""
    """Tables: the column of texts, by name or by number; if not given, the one with a usual name."""


@dataclass(frozen=True, kw_only=True)
class TableOptions(DataOptions):
    """Options of tasks that read tables with a row for each example."""

    title = "Data"

    delimiter: Annotated[str, TextFormat(parse_delimiter)] = ""
    """Tables: the mark between columns: a character, or tab, comma, semicolon, bar; if not given, it is detected."""

    header: Literal["auto", "yes", "no"] = "auto"
    """Tables: whether the first row names the columns; auto: if it has usual names, or the ones given here."""

    group: str = ""
    """Tables: the column of groups, such as authors: all examples of a group are held out, or none."""


@dataclass(frozen=True, kw_only=True)
class LabelledOptions(TextColumnOptions, TableOptions):
    """Options of tasks that read labelled texts."""

    title = "Data"

    label: str = ""
    """Tables: the column of labels, by name or by number."""

    id: str = ""
    """Tables: the column that names each example, which predictions repeat."""


@dataclass(frozen=True, kw_only=True)
class PairOptions(TableOptions):
    """Options of tasks that read pairs."""

    title = "Data"

    source: str = ""
    """Tables: the column of sources, by name or by number."""

    target: str = ""
    """Tables: the column of targets."""


@dataclass(frozen=True, kw_only=True)
class TaggedOptions(TableOptions):
    """Options of tasks that read tagged sentences."""

    title = "Data"

    words: str = ""
    """Tables: the column of words: lists, texts between spaces, or a word in each row."""

    tags: str = ""
    """Tables: the column of tags."""

    sentence: str = ""
    """Tables with a word in each row: the column that names its sentence."""


@dataclass(frozen=True, kw_only=True)
class SplitOptions(DataOptions):
    """Options of tasks that hold out validation and test sets."""

    title = "Data"

    valid_fraction: BelowOne | None = None
    """Share of `texts` held out to validate on, without --valid: 0.05, if not given. Every class has its share."""

    test_fraction: BelowOne | None = None
    """Share of `texts` held out to test on, without --test: 0.05, if not given; 0 holds nothing out."""

    valid: tuple[str, ...] = ()
    """Validation file; default: a part of the training files. Repeat the option for several."""

    test: tuple[str, ...] = ()
    """Test file, for `recur eval`; default: a part of the training files."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.valid_fraction == 0:
            raise OptionError("--valid-fraction must be above 0: the best weights are chosen on the validation set")
        if (self.valid_fraction or 0) + (self.test_fraction or 0) >= 1:
            raise OptionError(
                f"--valid-fraction {self.valid_fraction:g} and --test-fraction {self.test_fraction:g} leave nothing to "
                "learn from: their sum must be below 1"
            )

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if self.valid:
            found["valid_fraction"] = "is for files without --valid"
        if self.test:
            found["test_fraction"] = "is for files without --test"
        return found

    def paths(self, part: str) -> tuple[str, ...]:
        return {"valid": self.valid, "test": self.test}.get(part) or super().paths(part)


@dataclass(frozen=True, kw_only=True)
class FoldOptions(SplitOptions):
    """Options of tasks with cross-validation."""

    title = "Data"

    fold: Annotated[str, TextFormat(parse_fold)] = ""
    """Cross-validation: 3/10 holds out the third of ten parts of the data as the test set, and a tenth of the rest for
    validation. `--folds 10` trains on all ten."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fold and self.test:
            raise OptionError(f"--fold {self.fold} is the test part: leave --test out")


Token = Literal["char", "word", "subword"]


@runtime_checkable
class TokenOptions(Protocol):
    """Options of a task that lets the user choose the kind of token."""

    @property
    def token(self) -> Token | None: ...


@dataclass(frozen=True, kw_only=True)
class VocabOptions(Options):
    """Options of the tokenizer and the vocabulary."""

    title = "Tokens"

    punctuation: bool = False
    """Words: punctuation marks and Chinese characters are separate tokens."""

    lower: bool = False
    """Words: convert to lower case."""

    min_freq: Count = 1
    """Tokens with fewer training occurrences become unknown."""

    max_vocab_size: Count | None = None
    """Maximum vocabulary size, including the four special tokens."""

    pieces: Count = 2000
    """Subwords: vocabulary size of sentencepiece."""

    def vocab_options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in VocabOptions.names()}


@dataclass(frozen=True, kw_only=True)
class WarmStartOptions(Options):
    """Options of a warm start from a language model or from word vectors."""

    title = "Warm start"

    carried: ClassVar[Mapping[str, Any]] = {}
    """Defaults with --from; `epochs` replaces `default_epochs`."""

    from_: tuple[str, ...] = ()
    """Initialise vocabulary, embedding and layers from the run of a language model. For a bidirectional network, give
    two: the second trained with --direction backward."""

    unfreeze: BelowOne = 0.0
    """With --from: train the new layers first, then one more pretrained layer, from the top, after each such fraction
    of the budget; 0: all layers from the start."""

    layer_lr_decay: Annotated[float, Range("lie in 1 … 1000", 1, 1000)] = 1.0
    """With --from: the learning rate of each layer is that of the layer above divided by this."""

    vectors: str | None = None
    """Initialise the embedding from word vectors: a text file of GloVe, word2vec or fastText, also .gz."""

    vectors_extra: Natural = 0
    """With --vectors: add this many of the file's first tokens to the vocabulary, even if they are not in the training
    set."""

    freeze_vectors: bool = False
    """With --vectors or --from: keep the embedding fixed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.from_ and self.vectors is not None:
            raise OptionError("--from and --vectors both bring vectors of tokens: take one of them")

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if not self.from_:
            found |= dict.fromkeys(("unfreeze", "layer_lr_decay"), "is for --from, which is not given")
        if self.vectors is None:
            found["vectors_extra"] = "is for --vectors, which is not given"
        if not self.from_ and self.vectors is None:
            found["freeze_vectors"] = "is for --vectors or --from, and neither is given"
        return found


@dataclass(frozen=True, kw_only=True)
class DecoderTaskOptions(TaskOptions, SplitOptions, VocabOptions, DecoderOptions, WarmStartOptions):
    """Options of tasks that generate sequences."""

    title = "Decoder"

    teacher_forcing: Annotated[str, TextFormat(TeacherForcing.parse)] = "always"
    """Teacher forcing: always, never, constant:p, linear:a:b, exponential:k, sigmoid:k; ,sequence mixes sequences."""

    label_smoothing: BelowOne = 0.0
    """Label smoothing: probability that is spread over all symbols."""


@dataclass(frozen=True, kw_only=True)
class InputOptions(SplitOptions):
    """Options of tasks that read texts or sequences of numbers."""

    title = "Data"

    input: Literal["text", "numbers"] | None = None
    """Kind of sequences: text or numbers; default: by the files (numbers in .npz, .npy, or a folder of .npy and
    .csv)."""

    stack: Layers = 1
    """Numbers: read this many neighbouring steps as one, for long sequences."""

    noise: NonNegative = 0.0
    """Numbers: standard deviation of noise that training adds to the standardised input."""

    for_both: ClassVar[tuple[str, ...]] = ("pool", "heads", "class_weights", "fold", "on_bad_rows")
    """Options beside those of every task and every reader that mean something for numbers too."""
    for_numbers: ClassVar[tuple[str, ...]] = ("stack", "noise")
    """Those that mean something for them alone."""
    for_tokens: ClassVar[tuple[str, ...]] = ("embedding_init", "dropout_embedding", "dropout_words")
    """A reader's that mean something for texts alone."""

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if self.input == "text":
            found |= dict.fromkeys(self.for_numbers, "is for sequences of numbers, and these are texts")
        if self.input == "numbers":
            shared = {*TaskOptions.names(), *InputOptions.names(), *ReaderOptions.names()}
            shared = (shared | {*self.for_both, *self.for_numbers}) - {*self.for_tokens}
            why = "is for texts, and these are sequences of numbers"
            found |= {name: why for name in self.names() if name not in shared}
        return found


OptionsT = TypeVar("OptionsT", bound=InputOptions)


def with_input(options: OptionsT) -> OptionsT:
    """Return options that say what the files contain; sets inside an .npz replace those that are not named."""
    # These modules need NumPy, and options are parsed without it.
    from recur.data.images import split_name
    from recur.data.signals import find_signal_arrays, is_signals

    if options.input is None:
        numbers = {is_signals(name) for name in options.texts}
        if len(numbers) > 1:
            raise TextError(f"{', '.join(options.texts)}: some are texts and some sequences of numbers")
        options = options.changed(input="numbers" if True in numbers else "text")
    if options.input == "text":
        return options
    fields = {}
    given: Options = options
    folds = isinstance(given, FoldOptions) and given.fold
    for part in ("valid",) if folds else ("valid", "test"):  # a fold is the test part
        names = [n for n in options.texts if split_name(n)[0] == n and Path(n).suffix.lower() == ".npz"]
        own = tuple(f"{name}:{part}" for name in names if part in find_signal_arrays(name).parts)
        if own and not options.paths(part):
            fields[part] = own
    return options.changed(**fields)


def cell_of(options: TaskOptions) -> str:
    """Return the option `cell`; empty for a task whose network has no choice of cell."""
    return options.cell if isinstance(options, NetworkOptions) else ""
