"""Options of the task copy, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from recur.models.options import TaggerOptions
from recur.options import Between, Length, OneOf, Positive, WidthOrNone
from recur.tasks.common.options import TaskOptions


@dataclass(frozen=True, kw_only=True)
class CopyOptions(TaskOptions, TaggerOptions):
    """Recall symbols after a long delay: a test of long memory."""

    title = "copy"

    length: Length = 30
    """Number of steps between the symbols and their recall."""

    forget_bias: float | None = None
    """Bias of the forget gate; default 4, if the cell has one and --chrono is not given: a state then lasts about 1 +
    e⁴ steps."""

    # Defaults of its own ---------------------------------------------------------------------------------

    embedding_size: WidthOrNone = 0
    lr: Positive = 0.006

    search = MappingProxyType(
        {
            "cell": OneOf(("gru", "lstm")),
            "hidden_size": Between(32, 256, log=True),
            "lr": Between(0.0005, 0.02, log=True),
        }
    )


OPTIONS = CopyOptions
