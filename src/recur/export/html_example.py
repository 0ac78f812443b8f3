"""What a page of numbers opens with, where the run's own are here: nobody types them. Texts it leaves to its user."""

from __future__ import annotations

import math

from recur.data.series import Panel, Series
from recur.data.signals import read_signals
from recur.errors import RecurError
from recur.export.graphs import Portable
from recur.runs import Run
from recur.tasks.common.runs import options_of_run, with_run_texts
from recur.tasks.forecast.task import read_series

ROWS = 400
"""Of a series, the last so many; of a sequence, the first."""


def example(portable: Portable) -> str:
    """As it would be pasted; nothing where there is none."""
    if portable.run is None or not (portable.kind == "forecaster" or portable.settings.get("reads") == "numbers"):
        return ""
    try:
        if portable.kind == "forecaster":
            return _series(portable.run, int(portable.settings["season"]))
        return _sequence(portable.run) if portable.run.manifest.texts.get("texts") else ""
    except RecurError:  # what it learned from is not here any more
        return ""


def _series(run: Run, season: int) -> str:
    panel, _ = read_series(with_run_texts(run, options_of_run(run), ("texts", "test"), changed=True))  # type: ignore[arg-type]
    return table_of(panel, panel.series[0], season)


def table_of(panel: Panel, one: Series, season: int) -> str:
    """A series as a CSV, with its dates and what stands beside it; known rows ahead have no values. Whole seasons are
    left out: without dates, the phase of the first row is known by its place alone."""
    first = -(-max(0, len(one) - ROWS) // season) * season
    ahead = len(one.future) if panel.future else len(one)
    dates = panel.dates(one, 0, ahead)
    header = [*(["date"] if dates else []), *map(_quoted, (*panel.targets, *panel.future, *panel.past))]
    lines = [",".join(header)] if len(header) > 1 else []
    for t in range(first, ahead):
        rows = (one.values, one.future, one.past)
        cells = [
            value for columns in rows for value in (columns[t] if t < len(columns) else [math.nan] * columns.shape[1])
        ]
        written = ["" if math.isnan(value) else f"{value:.10g}" for value in cells]
        lines.append(",".join([*dates[t : t + 1], *written]))
    return "\n".join(lines)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',;"\t') else name


def _sequence(run: Run) -> str:
    options = with_run_texts(run, options_of_run(run), ("texts",), changed=True)
    values = read_signals(getattr(options, "texts", ()))[0].values[:ROWS]
    return "\n".join(" ".join(f"{number:.6g}" for number in step) for step in values.tolist())
