"""Options of the task tag, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recur.errors import OptionError
from recur.models.options import Direction, TaggerOptions
from recur.options import Positive, Share, Width, WidthOrNone
from recur.tasks.options import CarryOptions, SplitOptions, TaskOptions, Token, VocabOptions


@dataclass(frozen=True, kw_only=True)
class TagOptions(TaskOptions, SplitOptions, VocabOptions, TaggerOptions, CarryOptions):
    """A tag for every word: CoNLL columns."""

    title = "tag"
    reads = "tagged"

    token: Token = "word"
    """How words are spelled: one token each, or as many as they have characters or pieces."""

    class_weights: Literal["none", "balanced"] = "none"
    """Count rare tags as much as frequent ones, or every word alike."""

    # Defaults of its own ---------------------------------------------------------------------------------

    direction: Direction = "both"
    hidden: Width = 192
    embedding: WidthOrNone = 128
    dropout_input: Share = 0.3
    dropout_output: Share = 0.5
    rate: Positive = 0.005

    cpu_batch = 16
    default_epochs = 8.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recurrence == "output" and self.token != "word":
            raise OptionError(f"--recurrence output has an output at every step: take --token word, got {self.token}")


OPTIONS = TagOptions
