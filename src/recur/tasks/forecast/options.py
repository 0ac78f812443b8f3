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
    """Values that follow those of the texts, series by series, to test on; else the last ones of the texts are."""

    target: tuple[str, ...] = ()
    """The columns to forecast; all columns of numbers, if not given. Repeat it for several."""

    covariates: tuple[str, ...] = ()
    """Columns that are known ahead. Repeat it for several."""

    past_covariates: tuple[str, ...] = ()
    """Columns that are known until now only. Repeat it for several."""

    static: tuple[str, ...] = ()
    """In a long table: columns that are the same for all rows of a series. Repeat it for several."""

    date: str = ""
    """The column of dates; the first, if not given and not a target."""

    id: str = ""
    """In a long table: the column that names the series."""

    delimiter: Annotated[str, TextFormat(parse_delimiter)] = ""
    """The mark between columns: a character, or tab, comma, semicolon, bar; if not given, it is detected."""

    decimal: Literal["", ".", ","] = ""
    """The decimal mark of numbers; if not given, the numbers decide."""

    date_format: Annotated[str, TextFormat(parse_date_format)] = ""
    """How dates are written: dmy (31.12.2024), mdy (12/31/2024), ymd, or a pattern such as %d-%b-%y; if not given, the
    dates decide, and 1/2/2024 alone is asked about."""

    layout: Literal["auto", "wide", "long", "rows"] = "auto"
    """How the table stands: a column a series, a row a series and time, or a row a series."""

    horizon: Count | None = None
    """How many steps ahead; if not given, what the test files hold, else a season, or 1 without one."""

    season: Count | None = None
    """Steps in a season, such as 12 for months, 1 for none; if not given, the dates and the values decide."""

    holdout: Natural = 0
    """Steps at the end of each series to test on, and as many before them to measure on; 0 is two horizons, or a tenth
    of the series (at most 1000) if that is more; one horizon, where there are twenty series or more."""

    train_size: Count | None = None
    """Steps at the beginning of each series to learn from; all that are not held out, if not given."""

    valid_size: Count | None = None
    """Steps behind them to measure on; as --holdout says, if not given."""

    test_size: Count | None = None
    """Steps behind those to test on; as --holdout says, if not given."""

    window: Count | None = None
    """From a state: steps of the series in a training example; four seasons and at least 48, if not given."""

    mix: bool = False
    """The variables of a series are inputs to each other; else each is forecast from itself."""

    calendar: bool | None = None
    """Hour, day of the week, month and so on are inputs; if not given, where there are dates, and the slowest of these
    has come round three times in what is learned from."""

    strategy: Literal["direct", "iterated"] = "direct"
    """All steps at once, or one after the other, each from those before it."""

    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)
    """Which quantiles; the median is the forecast, the outermost are its band. Repeat it for each."""

    bands: Literal["rolling", "conformal", "model"] | None = None
    """Bands are moved so that they cover what they say: on all that has come since what was learned from, whenever a
    forecast is made (rolling), or on the validation part (conformal); or they are the model's own. If not given,
    rolling for fewer than twenty series, else conformal."""

    transform: Literal["none", "log"] | None = None
    """Work on the values, or on their logarithms; if not given, on logarithms where all values are positive and changes
    grow with them."""

    scale: Literal["deviation", "changes", "mean"] | None = None
    """What each series is divided by: the deviation of its training part, its mean change from step to step, or its
    mean, which leaves counts counts; if not given, changes for twenty series or more, mean for counts, else
    deviation."""

    balance: Fraction = 0.5
    """0 learns from all windows alike, so that long series count more; 1 from all series alike."""

    time_origin: Integer | None = None
    """With --time-input: the step at which t is 0; if not given, that of the first row, by its date if it has one."""

    # Defaults of its own ---------------------------------------------------------------------------------

    lags: Natural | None = None
    """See a window of so many values; 0 carries a state instead; if not given, the data decide."""

    segment: Natural | None = None
    """With a window: read it, and write what is to come, in segments of so many steps by a recurrent network; 0 is an
    MLP of the whole window. If not given, the data decide where they decide on the window; else 0."""

    level: Literal["last", "season", "window"] | None = None
    """What values are relative to: the last one, the mean of the last season, or that of the window; if not given, the
    last one for segments, else the season's."""

    base: Literal["none", "seasonal", "linear"] | None = None
    """What the network adds to: the level alone, the seasonal naive forecast, or a linear autoregression of each
    series; if not given, linear where there are fewer than twenty series, each long enough to fit one."""

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
