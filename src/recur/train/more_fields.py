"""Options of the tasks that give labels, to texts, tokens and trees: a part of Config, apart from it for its length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class LabellingFields:
    directions: Literal[1, 2] = 1
    """Classify, tag: read from the start only, which can be streamed, or from both ends."""

    pool: Literal["last", "mean", "max", "attention"] = "last"
    """Classify: which of a text's states the class is read from."""

    class_weights: Literal["none", "balanced"] = "none"
    """Classify, tag: count rare classes as much as frequent ones, or every example alike."""

    compose: Literal["net", "rntn", "tree-lstm", "child-sum"] = "tree-lstm"
    """Tree: how a node is made of its children."""

    structure: Literal["given", "balanced", "left", "right"] = "given"
    """Tree: the file's own trees, halves of halves, or a chain from one end."""

    labels: Literal["all", "root"] = "all"
    """Tree: learn from the labels of all nodes, or of the root only."""


@dataclass(frozen=True, kw_only=True)
class ForecastFields:
    target: str = ""
    """Forecast: the columns to forecast, several between commas; all columns of numbers, if not given."""

    covariates: str = ""
    """Forecast: columns that are known ahead, several between commas."""

    date: str = ""
    """Forecast: the column of dates; the first, if not given and not a target."""

    horizon: int = 1
    """Forecast: how many steps ahead."""

    season: int = 1
    """Forecast: steps in a season, such as 12 for months; 1 is none."""

    holdout: int = 0
    """Forecast: steps at the end to test on, and as many before them to measure on; 0 is two horizons."""

    lags: int = 0
    """Forecast: see a window of so many values; 0 carries a state instead."""

    strategy: Literal["direct", "iterated"] = "direct"
    """Forecast: all steps at once, or one after the other, each from those before it."""

    quantiles: str = "0.1,0.5,0.9"
    """Forecast: which quantiles; the median is the forecast, the outermost are its band."""

    transform: Literal["none", "log"] = "none"
    """Forecast: work on the values, or on their logarithms."""

    # Synthetic tasks

    length: int = 100
    """Adding, copy: steps of a sequence (adding), or between a message and its recall (copy)."""
