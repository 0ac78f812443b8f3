"""Forecasts with their bands, drawn."""

from __future__ import annotations

import numpy as np

from recur.plotting import new_figure, save
from recur.series.rolling import Rolling
from recur.series.table import SeriesTable


def draw(table: SeriesTable, result: Rolling, path: str) -> None:
    """The end of each series, and forecasts from origins that lie a horizon apart, to a file (.png, .svg or .pdf)."""
    T, n, columns = len(table), result.first, len(table.targets)
    horizon = max(map(len, result.predictions))
    begin = max(0, n - 3 * (T - n))
    figure, all_axes = new_figure(rows=columns, width=9, height=3.2 * columns)
    middle = result.quantiles.index(0.5)
    for column, axes in enumerate(all_axes):
        axes.plot(np.arange(begin, T), table.values[begin:, column], color="black", lw=1, label=table.targets[column])
        for k in range(0, len(result.predictions), horizon):
            made = result.predictions[k][:, column]
            steps = np.arange(n + k, n + k + len(made))
            label = "forecast" if not k else None
            axes.plot(steps, made[:, middle], color="tab:blue", lw=1.5, marker=".", label=label)
            band = f"{result.quantiles[0]:g} … {result.quantiles[-1]:g}" if not k else None
            axes.fill_between(steps, made[:, 0], made[:, -1], color="tab:blue", alpha=0.2, lw=0, label=band)
        if table.dates:
            ticks = np.linspace(begin, T - 1, 7).astype(int)
            axes.set_xticks(ticks, [table.dates[t] for t in ticks])
        axes.legend(frameon=False)
    save(figure, path)
