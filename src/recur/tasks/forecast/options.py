"""Options of the task forecast, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from recur.data.locales import parse_date_format
from recur.errors import OptionError
from recur.models.options import ForecasterOptions
from recur.options import Between, Count, Fraction, Integer, Natural, OneOf, Positive, TextFormat, Width
from recur.tasks.common.options import DataOptions, TaskOptions, parse_delimiter


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(TaskOptions, DataOptions, ForecasterOptions):
    """Forecast series with prediction intervals. Input: CSV, wide, long or one series per row."""

    title = "forecast"
    reads = "table"

    test: tuple[str, ...] = ()
    """Values that follow the training series, for the test; default: the end of each series."""

    target: tuple[str, ...] = ()
    """Columns to forecast, as in `--target a b` or `--target a,b`; default: all columns of numbers."""

    covariates: tuple[str, ...] = ()
    """Columns that are known ahead, as in `--covariates a b` or `--covariates a,b`."""

    past_covariates: tuple[str, ...] = ()
    """Columns that are known until now only, as in `--past-covariates a b`."""

    static: tuple[str, ...] = ()
    """Long tables: columns that are constant within a series. Repeat the option for several."""

    date: str = ""
    """Column of dates; default: the first column if it is not a target."""

    id: str = ""
    """Long tables: column that names the series."""

    delimiter: Annotated[str, TextFormat(parse_delimiter)] = ""
    """The mark between columns: a character, or tab, comma, semicolon, bar; if not given, it is detected."""

    decimal: Literal["", ".", ","] = ""
    """The decimal mark of numbers; if not given, the numbers decide."""

    date_format: Annotated[str, TextFormat(parse_date_format)] = ""
    """How dates are written: dmy (31.12.2024), mdy (12/31/2024), ymd, or a pattern such as %d-%b-%y; if not given, the
    dates decide, and 1/2/2024 alone is asked about."""

    layout: Literal["auto", "wide", "long", "rows"] = "auto"
    """Table layout: wide (one column per series), long (one row per series and time), or rows (one row per series)."""

    horizon: Count | None = None
    """Number of steps to forecast; default: the length of the test files, else one season, else 1."""

    season: Count | None = None
    """Steps per season, such as 12 for months; 1: none. Default: from dates and values."""

    holdout: Natural = 0
    """Steps at the end of each series for the test, and as many before them for validation. 0: two horizons, or a tenth
    of the series (at most 1000) if that is more; one horizon with twenty series or more."""

    train_size: Count | None = None
    """Training steps at the start of each series; default: all that are not held out."""

    valid_size: Count | None = None
    """Validation steps after the training steps; default: see --holdout."""

    test_size: Count | None = None
    """Test steps after the validation steps; default: see --holdout."""

    window: Count | None = None
    """Recurrent state: steps per training example; default: four seasons, at least 48."""

    mix: bool = False
    """Use the variables of a series as inputs to each other; otherwise each is forecast from itself."""

    calendar: bool | None = None
    """Use hour, weekday, month and so on as inputs; default: if the training dates cover the slowest of these cycles
    three times."""

    strategy: Literal["direct", "iterated"] = "direct"
    """Forecast all steps at once, or one after the other from the previous ones."""

    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)
    """Quantiles to forecast; the median is the forecast, the outermost are its prediction interval. Repeat the option
    for each."""

    bands: Literal["rolling", "conformal", "model"] | None = None
    """Prediction intervals: rolling (calibrated on all values up to each forecast), conformal (calibrated on the
    validation set), or model (quantiles of the network). Default: rolling for fewer than twenty series, else
    conformal."""

    transform: Literal["none", "log"] | None = None
    """Model the values or their logarithms; default: logarithms if all values are positive and changes grow with
    values."""

    scale: Literal["deviation", "changes", "mean"] | None = None
    """Divisor of each series: deviation of its training part, mean change per step, or mean (for counts). Default:
    changes for twenty series or more, mean for counts, else deviation."""

    balance: Fraction = 0.5
    """Weighting of series: 0 weights all windows alike, so that long series count more; 1 weights all series alike."""

    time_origin: Integer | None = None
    """With --time-input: step at which t is 0; default: the first row, by its date if it has one."""

    # Defaults of its own ---------------------------------------------------------------------------------

    lags: Natural | None = None
    """Window length: number of past values that are read; 0: a recurrent state instead. Default: from the data."""

    segment: Natural | None = None
    """With a window: read and forecast segments of this many steps with a recurrent network; 0: an MLP over the whole
    window. Default: from the data."""

    level: Literal["last", "season", "window"] | None = None
    """Level that values are relative to: the last value, the mean of the last season, or the mean of the window.
    Default: last for segments, else season."""

    base: Literal["none", "seasonal", "linear"] | None = None
    """Base forecast to which the network adds: none (the level), seasonal (naive), or linear (autoregression per
    series). Default: linear for fewer than twenty series that are long enough to fit one."""

    hidden_size: Width = 64
    dropout_output: Fraction = 0.1
    lr: Positive = 0.01

    adamw_decay = 0.1
    default_epochs = 16.0

    search = MappingProxyType(
        {
            "cell": OneOf(("gru", "lstm")),
            "hidden_size": Between(16, 256, log=True),
            "window": OneOf((24, 48, 96)),
            "lr": Between(0.001, 0.03, log=True),
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
        if self.distribution == "negative-binomial" and self.transform == "log":
            raise OptionError("--distribution negative-binomial is for counts as they are: leave --transform log away")

    def unused(self) -> dict[str, str]:
        deep = ("depth_input", "depth_transition", "depth_output", "depth_between")
        of_states = ("cell", "init", "forget_bias", "chrono", "backend", "bptt", "recurrence", *deep)
        why = f"is for a state; --lags {self.lags} has none"
        found = super().unused()
        if self.lags and not self.segment:
            found |= dict.fromkeys(of_states, why)
        if self.lags == 0:
            found |= dict.fromkeys(("segment", "spread", "highway"), "is for a window; --lags 0 carries a state")
        return found


OPTIONS = ForecastOptions
