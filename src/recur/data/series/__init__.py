"""Series of numbers. Nothing here needs torch.

reading.py makes a panel (panel.py) of CSV files of any layout (layout.py, records.py); dates.py and calendar.py read
their dates, clock.py the time itself, gaps.py fills what is missing, season.py finds what repeats. windows.py cuts a
series into parts and windows, naive.py, linear.py and shared.py forecast them plainly, scores.py says how good they
are, conformal.py has bands that cover what they say, anomaly.py tells what is unusual, figure.py draws.
"""

from recur.data.series.anomaly import Anomaly, anomalies, residuals
from recur.data.series.calendar import calendar_features, calendar_names
from recur.data.series.clock import Clock
from recur.data.series.conformal import Adaptive, Bands, rolling_bands
from recur.data.series.dates import Frequency
from recur.data.series.gaps import fill
from recur.data.series.joining import continued
from recur.data.series.layout import Columns
from recur.data.series.linear import Autoregression, Form, fit_autoregression, fit_autoregressions
from recur.data.series.naive import Naive2, Plain, SeasonalNaive, naive_forecasts
from recur.data.series.panel import Panel, Series
from recur.data.series.reading import parse_panel, read_panel
from recur.data.series.scores import Tally, deviations, mase_scales, owa
from recur.data.series.season import find_seasons, panel_seasons
from recur.data.series.shared import SharedAutoregression, fit_shared
from recur.data.series.windows import Split, blocks, histories, origins, windows

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
    "SeasonalNaive",
    "Series",
    "SharedAutoregression",
    "Split",
    "Tally",
    "anomalies",
    "blocks",
    "calendar_features",
    "calendar_names",
    "continued",
    "deviations",
    "fill",
    "find_seasons",
    "fit_autoregression",
    "fit_autoregressions",
    "fit_shared",
    "histories",
    "mase_scales",
    "naive_forecasts",
    "origins",
    "owa",
    "panel_seasons",
    "parse_panel",
    "read_panel",
    "residuals",
    "rolling_bands",
    "windows",
]
