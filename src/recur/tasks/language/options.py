"""Options of the task language, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recur.errors import OptionError
from recur.models.options import LanguageModelOptions
from recur.options import Count, Natural, NonNegative, Positive, Share
from recur.tasks.options import SplitOptions, TaskOptions, Token, VocabOptions


@dataclass(frozen=True, kw_only=True)
class LanguageOptions(TaskOptions, SplitOptions, VocabOptions, LanguageModelOptions):
    """Which token of a text comes next; `recur sample` writes."""

    title = "language"

    token: Token = "char"
    """What a token is."""

    partition: Literal["sequential", "random"] = "sequential"
    """Lanes that continue from batch to batch with their state, or windows with a fresh one."""

    window: Count = 32
    """Steps in a window."""

    jitter: bool = False
    """Let the window's length vary from batch to batch (sequential), and the rate with it."""

    strict: bool = False
    """Refuse a text that is shorter than a window, where otherwise the window is shortened."""

    # Defaults of its own ---------------------------------------------------------------------------------

    texts: tuple[str, ...] = ("pydoc",)
    hidden: Count = 320
    embedding: Natural = 64
    dropout_input: Share = 0.05
    dropout_output: Share = 0.1
    alpha: NonNegative = 0.3
    beta: NonNegative = 0.5
    rate: Positive = 0.012
    clip: NonNegative = 0.5

    cpu_batch = 16
    default_minutes = 1.0
    adamw_decay = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jitter and self.partition == "random":
            raise OptionError("jitter is for the sequential partition; random windows start at a random offset anyway")


OPTIONS = LanguageOptions
