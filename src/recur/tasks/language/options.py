"""Options of the task language, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Self

from recur.errors import OptionError, unknown
from recur.models.options import Direction, LanguageModelOptions
from recur.options import Between, Count, Fraction, Natural, NonNegative, OneOf, Positive, Width, WidthOrNone
from recur.tasks.common.options import (
    SplitOptions,
    TaskOptions,
    TextColumnOptions,
    Token,
    VocabOptions,
    WarmStartOptions,
)

WIDE = {"hidden_size": 256, "embedding_size": 256, "tie_weights": True, "lr": 0.008}
"""Defaults for many types."""


@dataclass(frozen=True, kw_only=True)
class LanguageOptions(
    TaskOptions, TextColumnOptions, SplitOptions, VocabOptions, LanguageModelOptions, WarmStartOptions
):
    """Predict the next token of a text; `recur sample` generates text."""

    title = "language"

    token: Token = "char"
    """Token."""

    partition: Literal["sequential", "random"] = "sequential"
    """sequential: lanes that continue from batch to batch with their state; random: windows with a zero state."""

    window: Count = 32
    """Steps per window."""

    jitter: bool = False
    """Vary the window length from batch to batch (sequential), and the learning rate with it."""

    direction: Direction = "forward"
    """Reading direction: forward, or backward, P(x) = Π P(x_t | x_{t+1} …); samples of a backward model end with the
    prompt."""

    strict: bool = False
    """Reject a text that is shorter than a window instead of shortening the window."""

    bias_init: Literal["zero", "unigram"] = "zero"
    """Initial output bias: zero, or the logarithm of each token's training frequency (used by automatic sizing). Not
    with --init-range or an adaptive softmax."""

    tuned_on: Natural = 0
    """Number of training tokens for which these options were tuned. For another size, dropouts, width and epochs are
    adapted by rule; 0: no adaptation."""

    untouched: tuple[str, ...] = ()
    """Options that the rule of --tuned-on does not change; options on the command line are never changed."""

    auto_size: bool = True
    """With a budget in minutes only: choose width, batch, window, learning rate, dropouts and epochs from the text and
    the measured speed of the device; given options stay."""

    # Defaults of its own ---------------------------------------------------------------------------------

    texts: tuple[str, ...] = ("pydoc",)
    hidden_size: Width = 320
    embedding_size: WidthOrNone = 64
    dropout_input: Fraction = 0.05
    dropout_output: Fraction = 0.1
    alpha: NonNegative = 0.3
    beta: NonNegative = 0.5
    lr: Positive = 0.012
    grad_clip: NonNegative = 0.5

    cpu_batch = 16
    default_minutes = 1.0
    adamw_decay = 0.1
    in_16_bits = True
    # Many types: a narrower network, and one matrix for both ends.
    by_token = MappingProxyType(dict.fromkeys(("word", "subword"), WIDE))

    search = MappingProxyType(
        {
            "cell": OneOf(("gru", "lstm")),
            "hidden_size": Between(128, 640, log=True),
            "num_layers": OneOf((1, 2)),
            "window": OneOf((32, 64, 128)),
            "lr": Between(0.002, 0.03, log=True),
            "dropout_input": Between(0.0, 0.3),
            "dropout_output": Between(0.0, 0.5),
        }
    )

    def for_token(self, token: str) -> Self:
        """One-hot words, which somebody asked for, cannot be tied."""
        return super().for_token(token) if self.embedding_size else self

    def unused(self) -> dict[str, str]:
        return super().unused() | ({} if self.tuned_on else {"untouched": "is for --tuned-on, which is not given"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jitter and self.partition == "random":
            raise OptionError("jitter is for the sequential partition; random windows start at a random offset anyway")
        if strange := [name for name in self.untouched if name not in self.names()]:
            raise OptionError(unknown("untouched option", strange[0], self.names()))
        if self.direction == "both":
            raise OptionError(
                "a language model that read both ways would see what it has to predict; "
                "take --direction forward or --direction backward"
            )


OPTIONS = LanguageOptions
