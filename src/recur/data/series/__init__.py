"""Time series. Nothing here imports torch.

reading     panels of series from CSV files of any layout
panel       series, panels, gaps, splits, windows
dates       dates, frequencies, calendar and time features
season      season lengths
scores      forecast metrics
intervals   conformal prediction intervals, anomalies
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
