"""Options of the task adding, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from recur.errors import OptionError
from recur.models.options import SequenceOptions
from recur.options import Between, Length, OneOf, Positive
from recur.tasks.common.options import TaskOptions


@dataclass(frozen=True, kw_only=True)
class AddingOptions(TaskOptions, SequenceOptions):
    """Add two marked numbers in a long sequence: a test of long memory."""

    title = "adding"

    length: Length = 100
    """Number of values per sequence."""

    # Defaults of its own ---------------------------------------------------------------------------------

    lr: Positive = 0.003

    search = MappingProxyType(
        {
            "cell": OneOf(("gru", "lstm")),
            "hidden_size": Between(16, 256, log=True),
            "lr": Between(0.0005, 0.02, log=True),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 2:
            raise OptionError(f"adding needs a row of at least 2 numbers, got --length {self.length}")


OPTIONS = AddingOptions
