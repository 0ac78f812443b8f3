"""What a forecaster is made of, as options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recur.models.options import RecurrenceOptions, SequenceOptions
from recur.options import Natural, Share


@dataclass(frozen=True, kw_only=True)
class ForecasterOptions(SequenceOptions, RecurrenceOptions):
    title = "Network"

    lags: Natural | None = 0
    """See a window of so many values; 0 carries a state instead."""

    segment: Natural | None = 0
    """With a window: read it, and write what is to come, in segments of so many steps by a recurrent network; 0 is an
    MLP of the whole window."""

    level: Literal["last", "season", "window"] | None = "season"
    """What values are relative to: the last one, the mean of the last season, or that of the window."""

    spread: bool = False
    """With a window: divide by its mean change from step to step, so that quiet and lively series look alike."""

    highway: bool = True
    """With a window: a linear map of it, shared by all series and learned with the network, is added to what that
    says."""

    base: Literal["none", "seasonal", "linear"] | None = "none"
    """What the network adds to: the level alone, the seasonal naive forecast, or a linear autoregression of each
    series."""

    distribution: Literal["quantile", "gaussian", "student", "negative-binomial"] = "quantile"
    """What is said of each value: its quantiles, learned by the pinball loss, or a distribution, by its likelihood;
    negative-binomial is for counts."""

    dropout_output: Share = 0.0
    """Drop parts of what forecasts are read from."""
