"""Options of the task classify, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recur.models.options import ClassifierOptions, Direction
from recur.options import Count, Natural, Positive, Share
from recur.tasks.options import SplitOptions, TaskOptions, Token, VocabOptions


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(TaskOptions, SplitOptions, VocabOptions, ClassifierOptions):
    """A class for every text: lines `label TAB text`."""

    title = "classify"

    token: Token | None = None
    """What a token is; if not given, words where texts are sentences, else characters."""

    class_weights: Literal["none", "balanced"] = "none"
    """Count rare classes as much as frequent ones, or every example alike."""

    # Defaults of its own ---------------------------------------------------------------------------------

    direction: Direction = "both"
    pool: Literal["last", "mean", "max", "attention"] = "max"
    hidden: Count = 128
    embedding: Natural = 64
    dropout_input: Share = 0.2
    dropout_output: Share = 0.5
    rate: Positive = 0.004

    cpu_batch = 32


OPTIONS = ClassifyOptions
