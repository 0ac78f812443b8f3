"""Series of numbers: table.py reads them from a CSV, scale.py is what a model sees of them, scores.py says how good
forecasts are, naive.py has the baselines, rolling.py compares them. Nothing here needs torch."""

from recur.series.naive import linear_autoregression, naive, seasonal_naive
from recur.series.rolling import Rolling, baselines, mean_scores, roll
from recur.series.scale import Clock, Scale, known_ahead
from recur.series.scores import coverage, mase_scale, pinball, smape
from recur.series.table import SeriesTable, parse_table, read_table

__all__ = [
    "Clock",
    "Rolling",
    "Scale",
    "SeriesTable",
    "baselines",
    "coverage",
    "known_ahead",
    "linear_autoregression",
    "mase_scale",
    "mean_scores",
    "naive",
    "parse_table",
    "pinball",
    "read_table",
    "roll",
    "seasonal_naive",
    "smape",
]
