"""Options of networks that are written in a form of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from recur.errors import OptionError, shown
from recur.nn.options import check_chrono, parse_scheme, parse_state
from recur.options import (
    Count,
    Fraction,
    Layers,
    LayersOrNone,
    Length,
    Natural,
    NonNegative,
    Options,
    Positive,
    TextFormat,
    Width,
    WidthOrNone,
)


def parse_embedding(init: str) -> tuple[str, float]:
    """How embeddings start: `normal:0.1` → its name and its number; `scaled` has none, for it depends on how many."""
    kind, colon, written = init.partition(":")
    try:
        scale = float(written) if colon else 0.0
    except ValueError:
        scale = 0.0
    if init != "scaled" and (kind not in ("uniform", "normal") or not 0 < scale < 1e30):
        raise OptionError(
            f"embedding_init must be scaled, or uniform:a or normal:σ with a number above 0, got {shown(init)}"
        )
    return kind, scale


EmbeddingInit = Annotated[str, TextFormat(parse_embedding)]


def parse_bptt(spec: str) -> None:
    if spec != "full":
        from recur.ops.bptt import BPTT  # which needs torch

        BPTT.parse(spec)


Direction = Literal["forward", "backward", "both"]
Pool = Literal["last", "mean", "max", "concat", "attention", "self-attention"]


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(Options):
    """A recurrent network."""

    title = "Network"

    cell: str = "gru"
    """A cell by name, or file.py:Class."""

    hidden: Width = 128
    """Units in a layer."""

    layers: Layers = 1
    """How many recurrent layers."""

    init: Annotated[str, TextFormat(parse_scheme)] = "torch"
    """How U, W and the output matrix V start: torch, glorot, orthogonal, identity or normal:σ."""

    forget_bias: float | None = None
    """Bias of the forget gate."""

    chrono: Length | None = None
    """Instead: draw the biases of forget and input gates so that units remember for 1 … this many steps, the longest
    dependency that is to be learned (Tallec and Ollivier 2018)."""

    depth_input: LayersOrNone = 0
    """Layers of tanh between input and hidden."""

    depth_transition: LayersOrNone = 0
    """Layers of tanh between hidden and hidden, inside every recurrent layer; it runs step by step, on the loop."""

    depth_output: LayersOrNone = 0
    """Layers of tanh between hidden and output."""

    depth_between: LayersOrNone = 0
    """Layers of tanh between one recurrent layer and the next; without them linear cells, such as lru, are linear in
    layers too."""

    time_input: bool = False
    """The time t is one more input: −1 … 1 over the length learned from, and beyond it, ever more slowly, more."""

    time_scale: Positive | None = None
    """The length that is; if not given, that of the longest training sequence, or of the whole training text."""

    backend: Literal["auto", "native", "cuda", "parallel", "torch", "loop"] = "auto"
    """What runs the recurrence; auto is the first of them that can."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chrono(self.chrono, self.forget_bias)
        if self.time_scale is not None and not self.time_input:
            raise OptionError("--time-scale is for --time-input, which is not given")

    @property
    def clock(self) -> float | None:
        """What t is divided by, where it is an input."""
        if self.time_input and self.time_scale is None:
            raise OptionError("time_input needs a time_scale: the length of the longest sequence to learn from")
        return self.time_scale if self.time_input else None


@dataclass(frozen=True, kw_only=True)
class RecurrenceOptions(NetworkOptions):
    """One whose outputs can be what the next step reads."""

    title = "Network"

    of_hidden_states: ClassVar[tuple[str, ...]] = (
        *("cell", "layers", "init", "forget_bias", "chrono", "depth_transition", "depth_between", "backend"),
        *("bptt", "residual", "initial", "dropout_hidden", "dropout_weight", "hidden_top"),
    )
    """Options that mean something between hidden states only."""

    recurrence: Literal["hidden", "output"] = "hidden"
    """What a step reads of the step before: its hidden state, or its output and nothing else. With outputs no step
    waits for another while it learns, behind the true output each; in use it reads its own."""

    def unused(self) -> dict[str, str]:
        why = "is for a recurrence between hidden states; --recurrence output has none"
        names = self.of_hidden_states if self.recurrence == "output" else ()
        return super().unused() | {name: why for name in names if name in self.names()}


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(NetworkOptions):
    """One that reads whole sequences."""

    title = "Network"

    bptt: Annotated[str, TextFormat(parse_bptt)] = "full"
    """What crosses time on the way back: full; truncated:τ, windows of τ steps; sliding:τ, every loss over the last τ
    steps, at τ times the cost; randomized:π; and ,clip:θ at every step."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(Options):
    """Tokens as vectors."""

    title = "Network"

    embedding: WidthOrNone = 64
    """Width of the embedding; 0 is one-hot."""

    embedding_init: EmbeddingInit = "scaled"
    """How embeddings start: scaled (normal with σ = 4/√K, at most 1), uniform:a in ± a, or normal:σ."""


@dataclass(frozen=True, kw_only=True)
class DropoutOptions(Options):
    """The places of dropout in a stack of layers."""

    title = "Regularisation"

    dropout_embedding: Fraction = 0.0
    """Drop whole tokens of the embedding."""

    dropout_input: Fraction = 0.0
    """Drop parts of the input."""

    dropout_hidden: Fraction = 0.0
    """Drop between layers."""

    dropout_weight: Fraction = 0.0
    """Drop entries of the recurrent matrix W."""

    dropout_output: Fraction = 0.0
    """Drop parts of the last layer's output."""

    variational: bool = False
    """One dropout mask for a whole sequence; else one for each step."""


@dataclass(frozen=True, kw_only=True)
class StackOptions(SequenceOptions, EmbeddingOptions, DropoutOptions):
    """Tokens in, layers above them: what language models and readers share."""

    title = "Network"

    residual: bool = False
    """Each layer above the first adds its input to its output."""

    initial: Annotated[str, TextFormat(parse_state)] = "zero"
    """Where sequences start: zero, random:σ or learned."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions(StackOptions, RecurrenceOptions):
    title = "Language model"

    tied: bool = False
    """The embedding is the output layer too."""

    hidden_top: WidthOrNone = 0
    """Units of the last layer; 0 is as many as the others. With as many as an embedding that is tied, no matrix stands
    between them."""

    softmax: Literal["full", "adaptive", "sampled"] = "full"
    """How the next token is learned: over all of them; adaptive, rare ones in clusters with narrower matrices (Grave et
    al. 2017); or sampled, against some that are drawn (Bengio and Senécal 2008), and over all of them in use."""

    softmax_samples: Count = 1024
    """How many are drawn for a batch."""

    init_range: NonNegative = 0.0
    """Draw all weights from ± this instead."""

    alpha: NonNegative = 0.0
    """Activation regularisation: weight of the outputs' mean square."""

    beta: NonNegative = 0.0
    """Temporal activation regularisation: weight of their change's mean square."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tied and not self.embedding:
            raise OptionError("tied weights need an embedding; set embedding to a width above 0, got 0")
        if self.tied and self.softmax == "adaptive":
            raise OptionError("an adaptive softmax has matrices of its own: take --no-tied, or --softmax sampled")

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if self.softmax != "sampled":
            found["softmax_samples"] = "is for --softmax sampled, which is not given"
        return found


@dataclass(frozen=True, kw_only=True)
class ReaderOptions(StackOptions):
    """Tokens in, states out."""

    title = "Network"

    direction: Direction = "forward"
    """Read from the start, which can be streamed, from the end, or both."""

    dropout_words: Fraction = 0.0
    """Read so many of the tokens as unknown ones while training, each on its own."""


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(ReaderOptions):
    title = "Network"

    pool: Pool = "last"
    """What of a text's states the class is read from: the last, their mean or maximum, all three (concat), or a mean
    whose weights are learned, once (attention) or several times (self-attention)."""

    heads: Count = 4
    """How many means self-attention has."""


@dataclass(frozen=True, kw_only=True)
class TaggerOptions(ReaderOptions, RecurrenceOptions):
    """An output at every step."""

    title = "Network"


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(RecurrenceOptions, EmbeddingOptions):
    """A network that writes."""

    title = "Decoder"

    condition: Literal["initial", "input", "both", "none", "aligned"] = "initial"
    """How the context reaches the decoder: as h₀, at every step, both, not at all, or symbol by symbol (aligned)."""

    feedback: bool = True
    """The decoder reads what it wrote before; without, its symbols are independent given the source."""

    stop: Literal["eos", "bernoulli", "length", "source"] = "eos"
    """How a sequence ends: by a symbol, by an output of its own, by a length predicted first, or with its source."""

    longest: Count = 100
    """Write no more symbols than this; longer targets are refused."""

    dropout_input: Fraction = 0.0
    """Drop parts of the embeddings."""

    dropout_hidden: Fraction = 0.0
    """Drop between layers."""

    dropout_output: Fraction = 0.0
    """Drop parts of what symbols are read from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.embedding:
            raise OptionError("embedding must be a whole number ≥ 1, got 0: a decoder reads what it wrote as vectors")
        if self.condition == "aligned" and self.stop != "source":
            raise OptionError(f"what is aligned with its source ends with it: take --stop source, got {self.stop!r}")


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderOptions(DecoderOptions):
    title = "Encoder and decoder"

    of_hidden_states = ("layers", "depth_transition")  # the encoder has hidden states all the same

    attention: Literal["additive", "dot", "none"] = "additive"
    """How the decoder looks at the source: additive, scaled dot product, or not at all."""

    input_feeding: bool = False
    """A step of the decoder also reads where the one before looked (Luong et al. 2015); steps then wait for each
    other."""

    copy: bool = False
    """A symbol may be taken from the source, from where attention looks (See et al. 2017)."""

    encoder_layers: Layers = 1
    """How many recurrent layers the encoder has."""

    direction: Direction = "both"
    """From where the encoder reads the source."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.condition == "none" and self.attention == "none":
            raise OptionError("--condition none and --attention none leave nothing to know the source by")
        for name in ("input_feeding", "copy"):
            if getattr(self, name) and self.attention == "none":
                raise OptionError(f"--{name.replace('_', '-')} needs attention; take --attention additive or dot")


@dataclass(frozen=True, kw_only=True)
class ForecasterOptions(SequenceOptions, RecurrenceOptions):
    title = "Network"

    lags: Natural | None = 0
    """See a window of so many values; 0 carries a state instead."""

    segment: Natural | None = 0
    """With a window: read it, and write what is to come, in segments of so many steps by a recurrent network; 0 is an
    MLP of the whole window."""

    level: Literal["last", "season", "window"] | None = "season"
    """What values are relative to: the last one, the mean of the last season, or that of the window."""

    spread: bool = False
    """With a window: divide by its mean change from step to step, so that quiet and lively series look alike."""

    highway: bool = True
    """With a window: a linear map of it, shared by all series and learned with the network, is added to what that
    says."""

    base: Literal["none", "seasonal", "linear"] | None = "none"
    """What the network adds to: the level alone, the seasonal naive forecast, or a linear autoregression of each
    series."""

    distribution: Literal["quantile", "gaussian", "student", "negative-binomial"] = "quantile"
    """What is said of each value: its quantiles, learned by the pinball loss, or a distribution, by its likelihood;
    negative-binomial is for counts."""

    dropout_output: Fraction = 0.0
    """Drop parts of what forecasts are read from."""


@dataclass(frozen=True, kw_only=True)
class WordTaggerOptions(TaggerOptions):
    """An output at every word."""

    title = "Network"

    of_hidden_states = (
        *RecurrenceOptions.of_hidden_states,
        *("crf", "constrained", "characters", "character_width", "character_embedding", "casing", "unknown"),
    )

    crf: bool = False
    """Tags of a sentence together, by a conditional random field; else each for itself, by a softmax."""

    constrained: bool = True
    """With --crf: leave out moves between tags that neither the rules of BIO and BIOES nor the training part have."""

    characters: Literal["none", "lstm", "cnn"] = "none"
    """Read a word's characters too: by an LSTM from both ends, or by a convolution and the largest over the word."""

    character_width: Width = 50
    """What characters become beside a word's embedding."""

    character_embedding: Width = 25
    """Width of the embedding of a character."""

    casing: bool = False
    """Whether a word is capitalised, a number or a sign is an input too."""

    unknown: NonNegative = 0.0
    """In training a word is <unk> with probability α / (α + how often it was seen), so that unknown words are learned;
    this is α, and 0 is never."""

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if self.characters == "none":
            found |= dict.fromkeys(("character_width", "character_embedding"), "is for --characters lstm or cnn")
        if not self.crf:
            found.setdefault("constrained", "is for --crf")
        return found


@dataclass(frozen=True, kw_only=True)
class TreeModelOptions(Options):
    title = "Network"

    compose: Literal["net", "rntn", "tree-lstm", "child-sum"] = "tree-lstm"
    """How a node is made of its children."""

    hidden: Width = 150
    """Units of a node."""

    embedding: Width = 300
    """Width of the embedding."""

    embedding_init: EmbeddingInit = "scaled"
    """How embeddings start: scaled (normal with σ = 4/√K, at most 1), uniform:a in ± a, or normal:σ."""

    dropout_input: Fraction = 0.0
    """Drop parts of the embeddings."""

    dropout_output: Fraction = 0.0
    """Drop parts of what classes are read from."""


@dataclass(frozen=True, kw_only=True)
class GridModelOptions(Options):
    title = "Network"

    compose: Literal["net", "lstm"] = "lstm"
    """How a point is made of its pixels and of the points before it: tanh of a linear map, or a memory with gates."""

    corners: Literal[1, 2, 4] = 4
    """From how many corners the image is read; with four every point has seen all of it."""

    hidden: Width = 16
    """Units of a point, for each corner."""

    layers: Layers = 1
    """How many grids, each of which reads the one below."""

    patch: Count | None = None
    """So many pixels by as many are a point; if not given, as few as leave 16 points along the longer side."""

    pool: Literal["mean", "max", "attention", "last"] = "mean"
    """Which of an image's states the class is read from; last is where reading from each corner ends."""

    dropout_input: Fraction = 0.0
    """Drop pixels."""

    dropout_hidden: Fraction = 0.0
    """Drop between layers."""

    dropout_output: Fraction = 0.0
    """Drop parts of what classes are read from."""
