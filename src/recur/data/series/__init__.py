"""Series of numbers. Nothing here needs torch.

reading.py makes a panel (panel.py) of CSV files of any layout (layout.py, records.py); dates.py and calendar.py read
their dates, clock.py the time itself, gaps.py fills what is missing, season.py finds what repeats. windows.py cuts a
series into parts and windows, naive.py, linear.py and shared.py forecast them plainly, scores.py says how good they
are, conformal.py has bands that cover what they say, anomaly.py tells what is unusual, figure.py draws.
"""

from recur.data.series.dates import Frequency, TimeFeature, calendar_features, calendar_names
from recur.data.series.intervals import (
    AdaptiveInterval,
    Anomaly,
    PredictionIntervals,
    anomalies,
    residuals,
    rolling_intervals,
)
from recur.data.series.panel import Panel, Series, Split, blocks, fill, histories, origins, windows
from recur.data.series.reading import SeriesColumns, join_panels, parse_panel, read_panel
from recur.data.series.scores import ForecastScores, deviations, mase_scales, owa
from recur.data.series.season import find_seasons, panel_seasons

__all__ = [
    "AdaptiveInterval",
    "Anomaly",
    "ForecastScores",
    "Frequency",
    "Panel",
    "PredictionIntervals",
    "Series",
    "SeriesColumns",
    "Split",
    "TimeFeature",
    "anomalies",
    "blocks",
    "calendar_features",
    "calendar_names",
    "deviations",
    "fill",
    "find_seasons",
    "histories",
    "join_panels",
    "mase_scales",
    "origins",
    "owa",
    "panel_seasons",
    "parse_panel",
    "read_panel",
    "residuals",
    "rolling_intervals",
    "windows",
]
