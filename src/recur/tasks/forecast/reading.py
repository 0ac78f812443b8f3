"""The series that options name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from recur.data.series import Panel, SeriesColumns, join_panels, parse_panel, read_panel
from recur.tasks.forecast.options import ForecastOptions


def read_series(o: ForecastOptions) -> tuple[Panel, int]:
    """What options name, values to test on behind those to learn from; and how many of these there are: as many of each
    series as of the shortest, lest those of longer ones are learned from."""
    panel = read_panel(o.texts, columns_of(o))
    if not o.test:
        return panel, 0
    test = read_panel(o.test, columns_of(o))
    both = join_panels(panel, test)
    ahead = min(len(whole) - len(one) for whole, one in zip(both.series, panel.series, strict=True))
    cut = (whole.until(len(one) + ahead) for whole, one in zip(both.series, panel.series, strict=True))
    return replace(both, series=tuple(cut)), ahead


def columns_of(o: ForecastOptions) -> SeriesColumns:
    return SeriesColumns(o.target, o.covariates, o.past_covariates, o.static, o.date, o.id, o.layout)


def parse_series(o: ForecastOptions, lines: Iterable[str], name: str) -> Panel:
    return parse_panel(lines, name, columns_of(o))
