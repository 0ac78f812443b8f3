"""Series of numbers. reading.py makes a panel (panel.py) of CSV files of any layout (layout.py), dates.py and
calendar.py read their dates, gaps.py fills what is missing, table.py reads one table without gaps, scale.py is what a
model sees of it, scores.py says how good forecasts are, naive.py has the baselines, rolling.py compares them. Nothing
here needs torch."""

from recur.series.calendar import calendar_features, calendar_names
from recur.series.dates import Frequency
from recur.series.gaps import fill
from recur.series.layout import Columns
from recur.series.naive import linear_autoregression, naive, seasonal_naive
from recur.series.panel import Panel, Series
from recur.series.reading import continued, parse_panel, read_panel
from recur.series.rolling import Rolling, baselines, mean_scores, roll
from recur.series.scale import Clock, Scale, known_ahead
from recur.series.scores import coverage, mase_scale, pinball, smape
from recur.series.table import SeriesTable, parse_table, read_table

__all__ = [
    "Clock",
    "Columns",
    "Frequency",
    "Panel",
    "Rolling",
    "Scale",
    "Series",
    "SeriesTable",
    "baselines",
    "calendar_features",
    "calendar_names",
    "continued",
    "coverage",
    "fill",
    "known_ahead",
    "linear_autoregression",
    "mase_scale",
    "mean_scores",
    "naive",
    "parse_panel",
    "parse_table",
    "pinball",
    "read_panel",
    "read_table",
    "roll",
    "seasonal_naive",
    "smape",
]
