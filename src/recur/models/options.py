"""Options of the networks in recur.models, as dataclasses that become command-line flags, TOML keys and keywords."""

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
    """Split an initialisation such as `normal:0.1` into name and number; `scaled` has no number."""
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
    """Options of a recurrent network."""

    title = "Network"

    cell: str = "gru"
    """Cell: a name, or file.py:Class."""

    hidden_size: Width = 128
    """Number of hidden units per layer."""

    num_layers: Layers = 1
    """Number of recurrent layers."""

    init: Annotated[str, TextFormat(parse_scheme)] = "torch"
    """Initialisation of U, W and the output matrix V: torch, glorot, orthogonal, identity or normal:σ."""

    forget_bias: float | None = None
    """Bias of the forget gate."""

    chrono: Length | None = None
    """Chrono initialisation: draw the biases of forget and input gates so that units remember for 1 … this many steps,
    the longest dependency in the data (Tallec and Ollivier 2018).
    """

    depth_input: LayersOrNone = 0
    """Number of tanh layers between input and hidden."""

    depth_transition: LayersOrNone = 0
    """Number of tanh layers between hidden and hidden, in every recurrent layer; runs step by step on the loop backend.
    """

    depth_output: LayersOrNone = 0
    """Number of tanh layers between hidden and output."""

    depth_between: LayersOrNone = 0
    """Number of tanh layers between one recurrent layer and the next; without them linear cells, such as lru, stay
    linear in depth.
    """

    time_input: bool = False
    """Give the time t as an additional input: −1 … 1 over the training length, growing logarithmically beyond it."""

    time_scale: Positive | None = None
    """Length that --time-input maps to −1 … 1; by default that of the longest training sequence, or of the training
    text.
    """

    backend: Literal["auto", "native", "cuda", "parallel", "torch", "chunk", "loop"] = "auto"
    """Backend of the recurrence; auto takes the first that can run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chrono(self.chrono, self.forget_bias)
        if self.time_scale is not None and not self.time_input:
            raise OptionError("--time-scale is for --time-input, which is not given")

    @property
    def clock(self) -> float | None:
        """Divisor of t, if the time is an input; else None."""
        if self.time_input and self.time_scale is None:
            raise OptionError("time_input needs a time_scale: the length of the longest training sequence")
        return self.time_scale if self.time_input else None


@dataclass(frozen=True, kw_only=True)
class RecurrenceOptions(NetworkOptions):
    """Options of a network whose recurrence can go through the output."""

    title = "Network"

    of_hidden_states: ClassVar[tuple[str, ...]] = (
        *("cell", "num_layers", "init", "forget_bias", "chrono", "depth_transition", "depth_between", "backend"),
        *("bptt", "residual", "initial", "dropout_hidden", "dropout_weight", "top_hidden_size"),
    )
    """Options that apply only to a recurrence between hidden states."""

    recurrence: Literal["hidden", "output"] = "hidden"
    """What a step reads of the previous step: its hidden state, or only its output. With output, training uses teacher
    forcing and computes all steps in parallel; in use, a step reads its own previous output.
    """

    def unused(self) -> dict[str, str]:
        why = "is for a recurrence between hidden states; --recurrence output has none"
        names = self.of_hidden_states if self.recurrence == "output" else ()
        return super().unused() | {name: why for name in names if name in self.names()}


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(NetworkOptions):
    """Options of a network that reads whole sequences."""

    title = "Network"

    bptt: Annotated[str, TextFormat(parse_bptt)] = "full"
    """Backpropagation through time: full; truncated:τ, windows of τ steps; sliding:τ, every loss over the last τ steps,
    at τ times the cost; randomized:π; with ,clip:θ to clip the gradient at every step.
    """


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(Options):
    """Options of token embeddings."""

    title = "Network"

    embedding_size: WidthOrNone = 64
    """Width of the embedding; 0 is one-hot."""

    embedding_init: EmbeddingInit = "scaled"
    """Initialisation of embeddings: scaled (normal with σ = 4/√K, at most 1), uniform:a in ± a, or normal:σ."""


@dataclass(frozen=True, kw_only=True)
class DropoutOptions(Options):
    """Dropout in a stack of layers."""

    title = "Regularisation"

    dropout_embedding: Fraction = 0.0
    """Dropout of whole tokens of the embedding."""

    dropout_input: Fraction = 0.0
    """Dropout of the inputs."""

    dropout_hidden: Fraction = 0.0
    """Dropout between layers."""

    dropout_weight: Fraction = 0.0
    """Dropout of entries of the recurrent matrix W."""

    dropout_output: Fraction = 0.0
    """Dropout of the last layer's output."""

    variational: bool = False
    """Use one dropout mask for all steps of a sequence; else one per step."""


@dataclass(frozen=True, kw_only=True)
class StackOptions(SequenceOptions, EmbeddingOptions, DropoutOptions):
    """Options that language models, classifiers and taggers share."""

    title = "Network"

    residual: bool = False
    """Each layer above the first adds its input to its output."""

    initial: Annotated[str, TextFormat(parse_state)] = "zero"
    """Initial state: zero, random:σ or learned."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions(StackOptions, RecurrenceOptions):
    title = "Language model"

    tie_weights: bool = False
    """Use the embedding as the output matrix (tied weights)."""

    top_hidden_size: WidthOrNone = 0
    """Number of units of the last layer; 0 for the same as the others. With the width of a tied embedding, no
    projection is needed between them.
    """

    softmax: Literal["full", "adaptive", "sampled"] = "full"
    """Training loss: full softmax; adaptive, with rare tokens in clusters with narrower matrices (Grave et al. 2017);
    or sampled, against drawn tokens (Bengio and Senécal 2008), with a full softmax in use.
    """

    softmax_samples: Count = 1024
    """Number of tokens drawn per batch for --softmax sampled."""

    init_range: NonNegative = 0.0
    """Draw all weights uniformly from ± this instead."""

    alpha: NonNegative = 0.0
    """Activation regularisation: weight of the outputs' mean square."""

    beta: NonNegative = 0.0
    """Temporal activation regularisation: weight of their change's mean square."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_weights and not self.embedding_size:
            raise OptionError("tied weights need an embedding; set embedding to a width above 0, got 0")
        if self.tie_weights and self.softmax == "adaptive":
            raise OptionError(
                "an adaptive softmax has matrices of its own: take --no-tie-weights, or --softmax sampled"
            )

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if self.softmax != "sampled":
            found["softmax_samples"] = "is for --softmax sampled, which is not given"
        return found


@dataclass(frozen=True, kw_only=True)
class ReaderOptions(StackOptions):
    """Options of a sequence encoder."""

    title = "Network"

    direction: Direction = "forward"
    """Reading direction: forward (can be streamed), backward, or both."""

    dropout_words: Fraction = 0.0
    """Fraction of tokens replaced by <unk> while training."""


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(ReaderOptions):
    title = "Network"

    pool: Pool = "last"
    """Pooling of the states: last, mean, max, all three (concat), or a learned weighted mean, one (attention) or
    several (self-attention).
    """

    heads: Count = 4
    """Number of weighted means of self-attention."""


@dataclass(frozen=True, kw_only=True)
class TaggerOptions(ReaderOptions, RecurrenceOptions):
    """Options of a network with an output at every step."""

    title = "Network"


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(RecurrenceOptions, EmbeddingOptions):
    """Options of a decoder."""

    title = "Decoder"

    condition: Literal["initial", "input", "both", "none", "aligned"] = "initial"
    """How the context reaches the decoder: initial state, every step, both, none, or aligned with the outputs."""

    feedback: bool = True
    """The decoder reads its previous symbol; without it, symbols are independent given the source."""

    stop: Literal["eos", "bernoulli", "length", "source"] = "eos"
    """How a sequence ends: by a symbol, by a separate output, at a predicted length, or at the length of the source."""

    max_length: Count = 100
    """Largest number of generated symbols; longer targets are rejected."""

    dropout_input: Fraction = 0.0
    """Dropout of the embeddings."""

    dropout_hidden: Fraction = 0.0
    """Dropout between layers."""

    dropout_output: Fraction = 0.0
    """Dropout of the input of the output layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.embedding_size:
            raise OptionError("embedding must be a whole number ≥ 1, got 0: a decoder reads what it wrote as vectors")
        if self.condition == "aligned" and self.stop != "source":
            raise OptionError(f"what is aligned with its source ends with it: take --stop source, got {self.stop!r}")


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderOptions(DecoderOptions):
    title = "Encoder and decoder"

    of_hidden_states = ("num_layers", "depth_transition")  # the encoder has hidden states all the same

    attention: Literal["additive", "dot", "none"] = "additive"
    """Attention over the source: additive, scaled dot product, or none."""

    input_feeding: bool = False
    """Input feeding: a decoder step also reads the attention result of the previous step (Luong et al. 2015); steps
    then run one after another.
    """

    copy: bool = False
    """Allow symbols to be copied from the attended source position (See et al. 2017)."""

    num_encoder_layers: Layers = 1
    """Number of recurrent layers of the encoder."""

    direction: Direction = "both"
    """Reading direction of the encoder."""

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
    """Window length: number of past values that are read; 0 carries a state instead."""

    segment: Natural | None = 0
    """With a window: read it and forecast in segments of this many steps with a recurrent network; 0 for an MLP over
    the whole window.
    """

    level: Literal["last", "season", "window"] | None = "season"
    """Level that values are relative to: the last value, the mean of the last season, or the mean of the window."""

    spread: bool = False
    """With a window: divide by its mean absolute change per step, so that calm and volatile series look alike."""

    highway: bool = True
    """With a window: add a linear map of it, shared by all series and trained with the network."""

    base: Literal["none", "seasonal", "linear"] | None = "none"
    """Base forecast to which the network adds: the level, the seasonal naive forecast, or a linear autoregression per
    series.
    """

    distribution: Literal["quantile", "gaussian", "student", "negative-binomial"] = "quantile"
    """Predictive distribution: quantiles (trained with the pinball loss), or a parametric one (by likelihood);
    negative-binomial is for counts.
    """

    dropout_output: Fraction = 0.0
    """Dropout of the input of the output layer."""


@dataclass(frozen=True, kw_only=True)
class WordTaggerOptions(TaggerOptions):
    """Options of a tagger of words."""

    title = "Network"

    of_hidden_states = (
        *RecurrenceOptions.of_hidden_states,
        *("crf", "constrained", "characters", "character_width", "character_embedding_size", "casing", "unknown"),
    )

    crf: bool = False
    """Tag whole sentences with a conditional random field; else each word independently with a softmax."""

    constrained: bool = True
    """With --crf: exclude transitions between tags that neither BIO/BIOES rules nor the training set allow."""

    characters: Literal["none", "lstm", "cnn"] = "none"
    """Read the characters of words: with a bidirectional LSTM, or with a convolution and a maximum over the word."""

    character_width: Width = 50
    """Width of the character features of a word."""

    character_embedding_size: Width = 25
    """Width of the character embedding."""

    casing: bool = False
    """Give the casing of a word (capitalised, number, sign) as an input."""

    unknown: NonNegative = 0.0
    """α of the probability α / (α + frequency) with which a word becomes <unk> while training, so that unknown words
    are learned; 0 for never.
    """

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if self.characters == "none":
            found |= dict.fromkeys(("character_width", "character_embedding_size"), "is for --characters lstm or cnn")
        if not self.crf:
            found.setdefault("constrained", "is for --crf")
        return found


@dataclass(frozen=True, kw_only=True)
class TreeModelOptions(Options):
    title = "Network"

    compose: Literal["net", "rntn", "tree-lstm", "child-sum"] = "tree-lstm"
    """Composition of a node from its children."""

    hidden_size: Width = 150
    """Number of units per node."""

    embedding_size: Width = 300
    """Width of the embedding."""

    embedding_init: EmbeddingInit = "scaled"
    """Initialisation of embeddings: scaled (normal with σ = 4/√K, at most 1), uniform:a in ± a, or normal:σ."""

    dropout_input: Fraction = 0.0
    """Dropout of the embeddings."""

    dropout_output: Fraction = 0.0
    """Dropout of the input of the output layer."""


@dataclass(frozen=True, kw_only=True)
class GridModelOptions(Options):
    title = "Network"

    compose: Literal["net", "lstm"] = "lstm"
    """Composition of a point from its pixels and its neighbours: net (tanh) or lstm."""

    corners: Literal[1, 2, 4] = 4
    """Number of corners from which the image is read; with four, every point has seen the whole image."""

    hidden_size: Width = 16
    """Number of units per point and corner."""

    num_layers: Layers = 1
    """Number of grids, each of which reads the one below."""

    patch: Count | None = None
    """Side of the square of pixels that forms one point; by default the smallest that leaves 16 points on the longer
    side.
    """

    pool: Literal["mean", "max", "attention", "last"] = "mean"
    """Pooling of the states; last is the point where reading from each corner ends."""

    dropout_input: Fraction = 0.0
    """Dropout of pixels."""

    dropout_hidden: Fraction = 0.0
    """Dropout between layers."""

    dropout_output: Fraction = 0.0
    """Dropout of the input of the output layer."""
