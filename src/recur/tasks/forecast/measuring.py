"""How good forecasts are: from every origin of a part whose whole horizon lies in it, beside plain ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from recur.data.series import ForecastScores, Panel, Split, deviations, mase_scales, origins, windows
from recur.data.series.intervals import PredictionIntervals, residuals
from recur.data.text.stream import Floats, Ids
from recur.models import Forecaster
from recur.tasks.forecast.rows import Rows
from recur.tasks.watching import FEW

BLOCK = 512
"""Origins that are scored at once."""

MOST_ORIGINS = 1000
"""From which bands and shares are chosen, of a long part; spread over it."""

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""How much of what the network adds to its base forecast may be taken."""


BEATEN = 0.1
"""By how much a base forecast must be beaten where one horizon fits into the validation part; where n fit, by 1/√n of
it."""


class Part(NamedTuple):
    """What is measured: for each series, the origins, and how many values stand before the first of them."""

    panel: Panel
    splits: tuple[Split, ...]
    name: str
    """valid or test"""
    horizon: int
    season: int

    def bounds(self, number: int) -> tuple[int, int]:
        split = self.splits[number]
        return (split.train, split.valid) if self.name == "valid" else (split.valid, split.test)

    def origins(self, most: int | None = None) -> list[Ids]:
        """Of each series; some that are spread over them where they are many."""
        bounds = [self.bounds(number) for number in range(len(self.panel))]
        strides = [1 if most is None else max((end - begin) // most, 1) for begin, end in bounds]
        return [origins(*bound, self.horizon, stride) for bound, stride in zip(bounds, strides, strict=True)]


def pairs(rows: Rows, at: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Every row with every origin of its series: rows (N,) and the steps before those origins (N,)."""
    own = [at[number] for number in rows.series]
    return np.repeat(np.arange(len(rows)), [len(one) for one in own]), np.concatenate(own) - 1


def by_series(rows: Rows, at: Sequence[Ids], scaled: np.ndarray) -> Iterator[Floats]:
    """Forecasts of all pairs (N, k, V, Q) as those of one series after the other (origins, k, targets, Q), in its
    units."""
    parts: list[Floats] = []
    begin = 0
    for row, number in enumerate(rows.series):
        end = begin + len(at[number])
        parts.append(rows.scales[row].back(scaled[begin:end].astype(np.float64)))
        begin = end
        if row + 1 == len(rows) or rows.series[row + 1] != number:
            yield np.concatenate(parts, axis=2)
            parts = []


def choose_share(model: Forecaster, run: Callable[[Ids, Ids], np.ndarray], part: Part, rows: Rows) -> None:
    """How much of the network's part to take: what has the least error of the median on the validation part. Where few
    horizons fit into it, chance alone makes one of several a little better than the base: that must be beaten by
    more."""
    at = part.origins(max(MOST_ORIGINS // len(rows), 8))
    which, ends = pairs(rows, at)
    target, middle = coming(rows, which, ends, part.horizon), model.quantiles.index(0.5)
    errors = {}
    for share in SHARES:
        model.share.fill_(share)
        errors[share] = float(np.nanmean(np.abs(run(which, ends)[..., middle] - target)))
    apart = sum((int(one[-1]) - int(one[0])) / part.horizon + 1 for one in at if len(one)) * len(rows) / len(at)
    best = min(errors, key=lambda share: errors[share])
    model.share.fill_(best if errors[best] < errors[0.0] * (1 - BEATEN / apart**0.5) else 0.0)


def coming(rows: Rows, which: Ids, ends: Ids, horizon: int) -> np.ndarray:
    """(N, k, V): what followed, scaled as rows are."""
    steps = (rows.offset.numpy()[which] + ends)[:, None] + np.arange(1, horizon + 1)
    found: np.ndarray = rows.targets.numpy()[steps]
    return found


def fit_bands(model: Forecaster, part: Part, rows: Rows, scaled: np.ndarray, move: bool) -> None:
    """Offsets of quantiles, where these are to be moved, and what is usual one step ahead; both are kept with the
    weights."""
    which, ends = pairs(rows, part.origins())
    target, channel = coming(rows, which, ends, part.horizon), rows.channel.numpy()[which]
    kinds = [np.flatnonzero(channel == c) for c in range(model.sizes.channels)]  # as many of each: series have them all
    kinds = [kind[:: -(-len(kind) // MOST_ORIGINS)] for kind in kinds]
    came = np.concatenate([target[kind] for kind in kinds], axis=2).astype(float)
    made = np.concatenate([scaled[kind] for kind in kinds], axis=2).astype(float)
    if np.isnan(came).all():
        return
    if move:
        bands = PredictionIntervals.fit(came, made, model.quantiles)
        model.offsets.copy_(torch.from_numpy(bands.offsets))
        made = bands.apply(made)
    if len(model.quantiles) > 1:
        usual = np.abs(residuals(came[:, 0], made[:, 0], model.quantiles))
        at = np.quantile(usual[~np.isnan(usual)], np.linspace(0, 1, len(model.residuals)))
        model.residuals.copy_(torch.from_numpy(at))


def with_bands(model: Forecaster, rows: Rows, which: Ids, scaled: np.ndarray) -> np.ndarray:
    """Quantiles (N, k, V, Q) moved by the offsets of their channels."""
    V, offsets, channel = model.sizes.variables, model.offsets.cpu().numpy(), rows.channel.numpy()[which]
    found = np.empty_like(scaled)
    for c in np.unique(channel):
        mine = channel == c
        found[mine] = PredictionIntervals(model.quantiles, offsets[:, c * V : (c + 1) * V]).apply(scaled[mine])
    return found


def first_forecast(model: Forecaster, rows: Rows, part: Part, run: Callable[[Ids, Ids], np.ndarray]) -> str:
    """Something to watch: from the first origin, the first steps ahead of the first series, with their bands."""
    which, ends = (each[:1] for each in pairs(rows, part.origins()))
    made, came = with_bands(model, rows, which, run(which, ends)), coming(rows, which, ends, part.horizon)[..., None]
    quantiles, true = (rows.scales[0].back(each.astype(np.float64))[0, :FEW, 0] for each in (made, came))
    name, middle = part.panel.series[rows.series[0]].id or part.panel.targets[0], model.quantiles.index(0.5)
    return "\n".join(
        f"{name}, {k} ahead → {q[middle]:.4g} in {q[0]:.4g} … {q[-1]:.4g}   it was {was[0]:.4g}"
        for k, (q, was) in enumerate(zip(quantiles, true, strict=True), 1)
    )


def score(part: Part, quantiles: Sequence[float], forecasts: Iterable[Floats]) -> dict[str, Any]:
    """Of forecasts of one series after the other."""
    tally = ForecastScores(tuple(quantiles), part.horizon)
    for number, (at, made) in enumerate(zip(part.origins(), forecasts, strict=True)):
        _add(tally, part, number, at, made)
    found = tally.scores()
    found["smape"] /= 100  # a share, as everywhere here
    return found


def _add(tally: ForecastScores, part: Part, number: int, at: Ids, made: Floats) -> None:
    one, (begin, _) = part.panel.series[number], part.bounds(number)
    unit = mase_scales(one.values[:begin], part.season)
    train = part.splits[number].train  # another file than was learned from may be too short to have such a part
    deviation = deviations(one.values[: train if train > part.season else begin])
    for first in range(0, len(at), BLOCK):
        block = slice(first, first + BLOCK)
        tally.add(one.id, windows(one.values, at[block], part.horizon), made[block], unit, deviation)
