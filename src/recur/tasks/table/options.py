"""Options of the task table, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from recur.errors import OptionError
from recur.models.options import RowModelOptions
from recur.options import Between, OneOf, Positive
from recur.tasks.options import FoldOptions, TaskOptions


@dataclass(frozen=True, kw_only=True)
class TableOptions(TaskOptions, FoldOptions, RowModelOptions):
    """A class or a number for every row of a table: a CSV file."""

    title = "table"
    reads = "table"

    target: str = ""
    """The column to tell from the others; the last one, if not given."""

    classes: bool | None = None
    """Whether the target is a class; if not given, where it has words, or at most 20 different numbers, all whole."""

    column_mean: tuple[float, ...] = ()
    """What is taken from each column of numbers, the target behind them; if not given, their means in training."""

    column_deviation: tuple[float, ...] = ()
    """What they are divided by then; if not given, their deviations in training."""

    # Defaults of its own ---------------------------------------------------------------------------------

    rate: Positive = 0.005

    cpu_batch = 64
    default_epochs = 60.0
    adamw_decay = 0.01

    search = MappingProxyType(
        {
            "hidden": Between(8, 256, log=True),
            "rate": Between(0.0005, 0.03, log=True),
            "batch": OneOf((16, 64, 256)),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.column_mean) != len(self.column_deviation) or not all(d > 0 for d in self.column_deviation):
            raise OptionError("column_mean and column_deviation have a number for each column, deviations above 0")


OPTIONS = TableOptions
