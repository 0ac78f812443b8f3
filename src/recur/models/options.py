"""What networks are made of, as options. A task's options inherit those of its model, and hand themselves to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from recur.errors import OptionError
from recur.models.forms import EmbeddingInit, parse_bptt
from recur.nn.options import check_chrono, parse_scheme, parse_state
from recur.options import (
    Count,
    Form,
    Layers,
    Length,
    NoLayers,
    NonNegative,
    Options,
    Positive,
    Share,
    Width,
    WidthOrNone,
)

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

    init: Annotated[str, Form(parse_scheme)] = "torch"
    """How U, W and the output matrix V start: torch, glorot, orthogonal, identity or normal:σ."""

    forget_bias: float | None = None
    """Bias of the forget gate."""

    chrono: Length | None = None
    """Instead: draw the biases of forget and input gates so that units remember for 1 … this many steps, the longest
    dependency that is to be learned (Tallec and Ollivier 2018)."""

    depth_input: NoLayers = 0
    """Layers of tanh between input and hidden."""

    depth_transition: NoLayers = 0
    """Layers of tanh between hidden and hidden, inside every recurrent layer; it runs step by step, on the loop."""

    depth_output: NoLayers = 0
    """Layers of tanh between hidden and output."""

    depth_between: NoLayers = 0
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

    bptt: Annotated[str, Form(parse_bptt)] = "full"
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

    dropout_embedding: Share = 0.0
    """Drop whole tokens of the embedding."""

    dropout_input: Share = 0.0
    """Drop parts of the input."""

    dropout_hidden: Share = 0.0
    """Drop between layers."""

    dropout_weight: Share = 0.0
    """Drop entries of the recurrent matrix W."""

    dropout_output: Share = 0.0
    """Drop parts of the last layer's output."""

    variational: bool = False
    """One dropout mask for a whole sequence; else one for each step."""


@dataclass(frozen=True, kw_only=True)
class StackOptions(SequenceOptions, EmbeddingOptions, DropoutOptions):
    """Tokens in, layers above them: what language models and readers share."""

    title = "Network"

    residual: bool = False
    """Each layer above the first adds its input to its output."""

    initial: Annotated[str, Form(parse_state)] = "zero"
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

    dropout_words: Share = 0.0
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
