"""Bands that go on with a series: whenever a forecast is made, they are fitted to all that has come since the values
that were learned from (recur.data.series.rolling_intervals), not to the validation part alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recur.data.series import Panel, rolling_intervals
from recur.data.text.stream import Ids
from recur.models import Forecaster
from recur.tasks.forecast import measuring
from recur.tasks.forecast.rows import Rows
from recur.tasks.forecast.task import ForecastTask

FEWEST = 2
"""Horizons that must have come since the values that were learned from; with fewer, bands are those of the validation
part."""


def can(task: ForecastTask, learned: Sequence[int], at: Sequence[Ids]) -> bool:
    """Whether enough has come before the first origin of each series, and there is a band to be moved."""
    if len(task.options.quantiles) == 1:
        return False
    least, needed = max(task.season, 2) + task.horizon, FEWEST * task.horizon
    return all(n >= least and len(one) and one[0] - n >= needed for n, one in zip(learned, at, strict=True))


def moved(
    task: ForecastTask,
    model: Forecaster,
    known: tuple[Rows, Sequence[int]],
    asked: tuple[Rows, Sequence[Ids]],
    scaled: np.ndarray,
    panel: Panel,
) -> np.ndarray:
    """Quantiles (N, k, V, Q) of the rows and origins that are `asked` for, moved by what the forecasts before each of
    them missed. Those before the first origin are made with rows that `known` values were fitted to: so many of each
    series. Both are scaled alike."""
    (before, learned), (rows, at) = known, asked
    earlier = [np.arange(n, one[0]) for n, one in zip(learned, at, strict=True)]
    most = max(measuring.MOST_ORIGINS // len(earlier), 1)
    earlier = [one[:: -(-len(one) // most)] for one in earlier]
    which, ends = measuring.pairs(before, earlier)
    made = task.forecast(model, before, which, ends)
    new, last = measuring.pairs(rows, at)
    came = [measuring.coming(*part, task.horizon) for part in ((before, which, ends), (rows, new, last))]
    starts = np.array([panel.series[number].start for number in rows.series])
    clocks = starts[which] + ends + 1, starts[new] + last + 1
    found = np.empty_like(scaled)
    V = model.sizes.variables
    kinds = [
        [np.flatnonzero(part.channel.numpy()[of] == c) for part, of in ((before, which), (rows, new))]
        for c in range(model.sizes.channels)
    ]
    target, forecast = (
        np.concatenate([np.concatenate([parts[0][old], parts[1][mine]]) for old, mine in kinds], axis=2).astype(float)
        for parts in (came, (made, scaled))
    )
    old, mine = kinds[0]  # the others are of the same steps
    when = np.concatenate([clocks[0][old], clocks[1][mine]])
    result = rolling_intervals(target, forecast, model.quantiles, len(old), when=when)
    for c, (_, mine) in enumerate(kinds):
        found[mine] = result[:, :, c * V : (c + 1) * V]
    return found
