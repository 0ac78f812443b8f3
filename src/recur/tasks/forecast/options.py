"""Options of the task forecast, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from recur.errors import OptionError
from recur.models.options import ForecasterOptions
from recur.options import Between, Count, Natural, OneOf, Positive, Share, Whole, Width
from recur.tasks.options import TaskOptions, TextOptions


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(TaskOptions, TextOptions, ForecasterOptions):
    """What comes next in a series, with bands: a CSV file."""

    title = "forecast"
    reads = "table"

    target: tuple[str, ...] = ()
    """The columns to forecast; all columns of numbers, if not given. Repeat it for several."""

    covariates: tuple[str, ...] = ()
    """Columns that are known ahead. Repeat it for several."""

    date: str = ""
    """The column of dates; the first, if not given and not a target."""

    horizon: Count | None = None
    """How many steps ahead; a season, if not given, or 1 without one."""

    season: Count | None = None
    """Steps in a season, such as 12 for months, 1 for none; if not given, the dates and the values decide."""

    holdout: Natural = 0
    """Steps at the end to test on, and as many before them to measure on; 0 is two horizons, or a tenth of the series
    (at most 200) if that is more."""

    window: Count = 48
    """Steps of the series in a training example."""

    strategy: Literal["direct", "iterated"] = "direct"
    """All steps at once, or one after the other, each from those before it."""

    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)
    """Which quantiles; the median is the forecast, the outermost are its band. Repeat it for each."""

    transform: Literal["none", "log"] = "none"
    """Work on the values, or on their logarithms."""

    time_origin: Whole | None = None
    """With --time-input: the step at which t is 0; if not given, that of the first row, by its date if it has one."""

    # Defaults of its own ---------------------------------------------------------------------------------

    hidden: Width = 64
    dropout_output: Share = 0.1
    rate: Positive = 0.01

    adamw_decay = 0.1
    default_epochs = 16.0

    search = MappingProxyType(
        {
            "cell": OneOf(("gru", "lstm")),
            "hidden": Between(16, 256, log=True),
            "window": OneOf((24, 48, 96)),
            "rate": Between(0.001, 0.03, log=True),
            "dropout_output": Between(0.0, 0.5),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time_origin is not None and not self.time_input:
            raise OptionError("--time-origin is for --time-input, which is not given")
        q = self.quantiles
        if not q or 0.5 not in q or list(q) != sorted(set(q)) or not 0 < q[0] <= q[-1] < 1:
            raise OptionError(
                "quantiles must rise inside 0 … 1 with 0.5 among them, as in --quantiles 0.1 --quantiles 0.5 "
                f"--quantiles 0.9; got {q}"
            )

    def unused(self) -> dict[str, str]:
        deep = ("depth_input", "depth_transition", "depth_output")
        of_states = ("cell", "init", "forget_bias", "backend", "bptt", "recurrence", *deep) if self.lags else ()
        return super().unused() | dict.fromkeys(of_states, f"is for a state; --lags {self.lags} has none")


OPTIONS = ForecastOptions
