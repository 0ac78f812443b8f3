"""Forecasts with their bands, drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recur.data.series.panel import Panel
from recur.data.text.arrays import Floats, Ids
from recur.utils.plotting import new_figure, save

MOST = 8
"""Series and variables that a figure shows."""


def draw(
    panel: Panel, origins: Sequence[Ids], forecasts: Sequence[Floats], quantiles: Sequence[float], path: str
) -> None:
    """The end of each of the first series, and forecasts (N, k, C, Q) from origins (N,) that lie a horizon apart, to a
    file (.png, .svg or .pdf)."""
    C = len(panel.targets)
    shown = [(k, c) for k in range(len(panel)) for c in range(C) if len(origins[k])][:MOST]
    figure, all_axes = new_figure(rows=len(shown), width=9, height=3.2 * len(shown))
    middle = list(quantiles).index(0.5)
    for (k, c), axes in zip(shown, all_axes, strict=True):
        one, at, made = panel.series[k], origins[k], forecasts[k][:, :, c]
        horizon = made.shape[1]
        first, end = int(at[0]), int(at[-1]) + horizon
        begin = max(0, first - 3 * (end - first))
        name = panel.targets[c] if len(panel) == 1 else one.id if C == 1 else f"{one.id}/{panel.targets[c]}"
        axes.plot(np.arange(begin, end), one.values[begin:end, c], color="black", lw=1, label=name)
        for n in range(0, len(at), horizon):
            steps = np.arange(at[n], at[n] + horizon)
            label, band = ("forecast", f"{quantiles[0]:g} … {quantiles[-1]:g}") if not n else (None, None)
            axes.plot(steps, made[n, :, middle], color="tab:blue", lw=1.5, marker=".", label=label)
            if len(quantiles) > 1:
                axes.fill_between(steps, made[n, :, 0], made[n, :, -1], color="tab:blue", alpha=0.2, lw=0, label=band)
        if dates := panel.dates(one, begin, end - begin):
            ticks = np.linspace(0, len(dates) - 1, 7).astype(int)
            axes.set_xticks(begin + ticks, [dates[t] for t in ticks])
        axes.legend(frameon=False)
    save(figure, path)
