"""Series of numbers. reading.py makes a panel (panel.py) of CSV files of any layout (layout.py), dates.py and
calendar.py read their dates, gaps.py fills what is missing, table.py reads one table without gaps, scale.py is what a
model sees of it, scores.py says how good forecasts are, naive.py has the baselines, rolling.py compares them. Nothing
here needs torch."""

from recur.series.anomaly import Anomaly, anomalies, residuals
from recur.series.calendar import calendar_features, calendar_names
from recur.series.conformal import Adaptive, Bands
from recur.series.dates import Frequency
from recur.series.gaps import fill
from recur.series.layout import Columns
from recur.series.linear import Autoregression, Form, fit_autoregression, fit_autoregressions
from recur.series.naive import Naive2, Plain, SeasonalNaive, naive_forecasts
from recur.series.panel import Panel, Series
from recur.series.reading import continued, parse_panel, read_panel
from recur.series.rolling import Rolling, baselines, mean_scores, roll
from recur.series.scale import Clock, Scale, known_ahead
from recur.series.scores import Tally, coverage, deviations, mase_scale, mase_scales, owa, pinball, smape
from recur.series.season import find_seasons, panel_seasons
from recur.series.table import SeriesTable, parse_table, read_table
from recur.series.windows import Split, blocks, histories, origins, windows

__all__ = [
    "Adaptive",
    "Anomaly",
    "Autoregression",
    "Bands",
    "Clock",
    "Columns",
    "Form",
    "Frequency",
    "Naive2",
    "Panel",
    "Plain",
    "Rolling",
    "Scale",
    "SeasonalNaive",
    "Series",
    "SeriesTable",
    "Split",
    "Tally",
    "anomalies",
    "baselines",
    "blocks",
    "calendar_features",
    "calendar_names",
    "continued",
    "coverage",
    "deviations",
    "fill",
    "find_seasons",
    "fit_autoregression",
    "fit_autoregressions",
    "histories",
    "known_ahead",
    "mase_scale",
    "mase_scales",
    "mean_scores",
    "naive_forecasts",
    "origins",
    "owa",
    "panel_seasons",
    "parse_panel",
    "parse_table",
    "pinball",
    "read_panel",
    "read_table",
    "residuals",
    "roll",
    "smape",
    "windows",
]
