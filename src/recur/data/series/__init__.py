"""Time series. Nothing here imports torch.

reading      panels of series from CSV files of any layout
panel        series, panels, gaps, splits, windows, season lengths
dates        dates, frequencies, calendar and time features
evaluation   forecast metrics, conformal prediction intervals, anomalies
"""

from recur.data.series.dates import Frequency, TimeFeature, calendar_features, calendar_names
from recur.data.series.evaluation import (
    AdaptiveInterval,
    Anomaly,
    ForecastScores,
    PredictionIntervals,
    anomalies,
    deviations,
    mase_scales,
    owa,
    residuals,
    rolling_intervals,
)
from recur.data.series.panel import (
    Panel,
    Series,
    Split,
    blocks,
    fill,
    find_seasons,
    histories,
    origins,
    panel_seasons,
    windows,
)
from recur.data.series.reading import SeriesColumns, join_panels, parse_panel, read_panel

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
