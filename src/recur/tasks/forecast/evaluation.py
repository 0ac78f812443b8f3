"""Forecasts of windows, their prediction intervals, and their scores compared with those of baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.baselines.forecasts import (
    BaselineForecast,
    Naive2,
    SeasonalNaive,
    SharedAutoregression,
    choose_autoregression,
    fit_in_form,
    fit_shared,
    naive_forecasts,
    prefers_logarithms,
)
from recur.data.series import (
    ForecastScores,
    Panel,
    Split,
    deviations,
    fill,
    mase_scales,
    origins,
    rolling_intervals,
    windows,
)
from recur.data.series.evaluation import PredictionIntervals, residuals
from recur.data.text.stream import Floats, Ids
from recur.errors import OptionError
from recur.models import Forecaster
from recur.models.forecaster import SeriesBatch
from recur.models.layers import State, map_state
from recur.tasks.common.batching import FEW
from recur.tasks.forecast.data import SeriesRows
from recur.tasks.forecast.rules import MANY

if TYPE_CHECKING:
    from recur.tasks.forecast.task import ForecastTask


LINEAR = "linear autoregression"


def baseline_scores(part: EvaluationPart) -> dict[str, dict[str, Any]]:
    """Return the scores of the baselines by name, fitted to the values before the evaluated part."""
    filled = [fill(one.values, part.season) for one in part.panel.series]
    before = [values[: part.bounds(number)[0]] for number, values in enumerate(filled)]
    found: dict[str, list[BaselineForecast]] = {"naive": [naive_forecasts] * len(filled)}
    if part.season > 1:
        found["seasonal naive"] = [SeasonalNaive(part.season)] * len(filled)
        found["naive 2"] = [Naive2.fit(values, part.season) for values in before]
    if linear := _linear(before, filled, part):
        found[LINEAR] = linear
    if len(filled) >= MANY and (shared := _shared(before, filled, part)):
        found[shared.name] = [shared] * len(filled)
    scores = {}
    for name, each in found.items():
        made = (one(values, at, part.horizon) for one, values, at in zip(each, filled, part.origins(), strict=True))
        scores[name] = score(part, (0.5,), (forecasts[..., None] for forecasts in made))
    return scores


def _linear(before: list[Floats], filled: list[Floats], part: EvaluationPart) -> list[BaselineForecast]:
    """Return linear autoregressions in the form with the best validation error; empty if all series are too short.

    A series that is too short has the naive forecast.
    """
    seen, learned = _learned(filled, part)
    try:
        form = choose_autoregression(seen, part.horizon, (part.season,) if part.season > 1 else (), learned)
    except OptionError:
        return []
    return [fit_in_form(values, part.horizon, form) or naive_forecasts for values in before]


def _shared(before: list[Floats], filled: list[Floats], part: EvaluationPart) -> SharedAutoregression | None:
    """Return an autoregression shared by all series, on logarithms if these are better; None for short series."""
    seen, learned = _learned(filled, part)
    try:
        return fit_shared(before, part.horizon, log=prefers_logarithms(seen, part.horizon, learned))
    except OptionError:
        return None


def _learned(filled: list[Floats], part: EvaluationPart) -> tuple[list[Floats], list[int]]:
    """Return all series without their test parts, and the number of training values of each."""
    seen = [values[: split.valid] for values, split in zip(filled, part.splits, strict=True)]
    return seen, [max(split.train, 1) for split in part.splits]


PATHS = 200
"""How many futures an iterated forecast draws."""

AT_ONCE = 1 << 23
"""About how many numbers a batch may make."""


@torch.no_grad()
def forecast(
    model: Forecaster, rows: SeriesRows, which: np.ndarray, ends: np.ndarray, horizon: int, strategy: str, seed: int
) -> np.ndarray:
    """Return quantiles (N, k, V, Q), in the scale of the rows, after steps `ends` (N,) of rows `which` (N,)."""
    rows = rows.on(model.device)
    found = np.empty((len(which), horizon, model.sizes.variables, len(model.quantiles)), np.float32)
    order = np.argsort(which, kind="stable") if not model.lags else np.arange(len(which))
    done = 0
    if strategy == "iterated":
        made = _iterated(model, rows, which[order], ends[order], horizon, seed)
    elif model.lags:
        made = _windows(model, rows, which, ends)
    else:
        made = _states(model, rows, which[order], ends[order])
    for part in made:
        found[order[done : done + len(part)]] = part.float().cpu().numpy()
        done += len(part)
    return found


def _quantiles(model: Forecaster, rows: SeriesRows, which: Tensor, parameters: Tensor) -> Tensor:
    """Return quantiles (N, k, V, Q) of distribution parameters (N, k, V, P)."""
    unit = rows.unit[which][:, None].expand(parameters.shape[:-1])
    return model.distribution.quantiles(parameters, unit)


def _batches(which: np.ndarray, ends: np.ndarray, each: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pairs of a row and a step, as many at once as memory holds."""
    at_once = max(AT_ONCE // max(each, 1), 1)
    for begin in range(0, len(which), at_once):
        part = slice(begin, begin + at_once)
        yield torch.from_numpy(which[part]).to(device), torch.from_numpy(ends[part]).to(device)


def _windows(model: Forecaster, rows: SeriesRows, which: np.ndarray, ends: np.ndarray) -> Iterator[Tensor]:
    L, k, o = model.lags, model.horizon, model.options
    wide = k * (model.sizes.variables * model.distribution.size + model.sizes.known)
    segments = (L + k) // (o.segment or L) + 1
    each = wide + L * (model.sizes.known + 2) + segments * o.hidden_size * o.num_layers * 4
    last = torch.tensor([L - 1], device=model.device)
    for row, end in _batches(which, ends, each, model.device):
        yield _quantiles(model, rows, row, model(rows.seen(row, end, L, k), last)[:, 0])


def _states(model: Forecaster, rows: SeriesRows, which: np.ndarray, ends: np.ndarray) -> Iterator[Tensor]:
    """Yield the states at the origins. Each row is read once: one forward pass serves every origin."""
    k, zero = model.horizon, torch.zeros(1, dtype=torch.long, device=model.device)
    each = k * (model.sizes.variables * model.distribution.size + 2 * model.sizes.known)
    reach = max(model.season, 0 if rows.linear is None else rows.linear.shape[2])
    for group, mine in _groups(which, ends, model.options.hidden_size * model.options.num_layers):
        last = int(ends[mine].max())
        read = torch.from_numpy(group).to(model.device)
        states, _ = model.states(rows.seen(read, torch.full_like(read, last), last + 1, k))
        for row, end in _batches(which[mine], ends[mine], each, model.device):
            near = rows.seen(row, end, reach, k)
            own = states[torch.searchsorted(read, row), end][:, None]
            raw = model.from_states(own, near.known[:, reach - 1 :], zero)
            yield _quantiles(model, rows, row, model.place(raw, model.base(near, zero + reach - 1))[:, 0])


def _groups(which: np.ndarray, ends: np.ndarray, hidden: int) -> Iterator[tuple[np.ndarray, slice]]:
    """Yield rows that are read together, and the pairs that belong to them."""
    rows, firsts = np.unique(which, return_index=True)
    bounds = [*firsts, len(which)]
    longest = np.maximum.reduceat(ends, firsts) + 1
    begin = 0
    while begin < len(rows):
        end = begin + 1
        while end < len(rows) and longest[begin : end + 1].max() * (end + 1 - begin) * hidden <= 4 * AT_ONCE:
            end += 1
        yield rows[begin:end], slice(int(bounds[begin]), int(bounds[end]))
        begin = end


# One step after the other ---------------------------------------------------------------------------------------------


def _iterated(
    model: Forecaster, rows: SeriesRows, which: np.ndarray, ends: np.ndarray, horizon: int, seed: int
) -> Iterator[Tensor]:
    """Forecast one step at a time for many sampled paths; each draws its next value from the last distribution."""
    for row, end in zip(which, ends, strict=True):
        draw = torch.Generator().manual_seed(seed)
        at = torch.tensor([int(end)], device=model.device)
        number = torch.tensor([int(row)], device=model.device)
        back = int(end) + 1 if not model.lags else rows.front
        whole = rows.seen(number, at, back, horizon)
        yield _paths(model, rows, whole, horizon, draw)[None]


def _paths(model: Forecaster, rows: SeriesRows, whole: SeriesBatch, horizon: int, draw: torch.Generator) -> Tensor:
    """(k, V, Q)"""
    T = whole.values.shape[1]

    def repeated(part: Tensor) -> Tensor:
        return part.repeat_interleave(PATHS, 0)

    unit = rows.unit[whole.row].expand(PATHS, -1)
    state: State | None = None
    now = whole._replace(known=whole.known[:, : T + 1])
    found = model(now, torch.tensor([T - 1], device=model.device))[:, 0, 0]  # (1, V, P): of the next step
    if not model.lags:
        _, state = model.states(now)
        state = map_state(state, repeated)
    parameters, values = repeated(found), repeated(whole.values)
    known, past, channel, row = (repeated(part) for part in (whole.known, whole.past[:, -1:], whole.channel, whole.row))
    steps = []
    for j in range(horizon):
        value = model.distribution.draw(parameters, unit, draw)[:, None]  # (paths, 1, V)
        steps.append(value)
        if j + 1 == horizon:
            break
        at = T + j  # where this value stands
        if state is not None:
            one = SeriesBatch(value, known[:, at : at + 2], past, channel, row, whole.linear)
            found, state = model.carry(one, state, values)
            values = torch.cat([values, value], dim=1)
        else:
            values = torch.cat([values, value], dim=1)
            seen = SeriesBatch(values, known[:, : at + 2], past.expand(-1, at + 1, -1), channel, row, whole.linear)
            found = model(seen, torch.tensor([at], device=model.device))
        parameters = found[:, -1, 0]
    levels = torch.tensor(model.quantiles, device=model.device)
    return torch.cat(steps, dim=1).quantile(levels, dim=0).permute(1, 2, 0)


BLOCK = 512
"""Origins that are scored at once."""

MOST_ORIGINS = 1000
"""From which bands and shares are chosen, of a long part; spread over it."""

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""How much of what the network adds to its base forecast may be taken."""


BEATEN = 0.1
"""By how much a base forecast must be beaten where one horizon fits into the validation part; where n fit, by 1/√n of
it."""


class EvaluationPart(NamedTuple):
    """Part of a panel that is evaluated: validation or test."""

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
        """Return the forecast origins of each series; evenly spaced ones if there are very many."""
        bounds = [self.bounds(number) for number in range(len(self.panel))]
        strides = [1 if most is None else max((end - begin) // most, 1) for begin, end in bounds]
        return [origins(*bound, self.horizon, stride) for bound, stride in zip(bounds, strides, strict=True)]


def pairs(rows: SeriesRows, at: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Return every row with every origin of its series: rows (N,) and the steps before those origins (N,)."""
    own = [at[number] for number in rows.series]
    return np.repeat(np.arange(len(rows)), [len(one) for one in own]), np.concatenate(own) - 1


def by_series(rows: SeriesRows, at: Sequence[Ids], scaled: np.ndarray) -> Iterator[Floats]:
    """Yield the forecasts (N, k, V, Q) of one series after the other, (origins, k, targets, Q), in its units."""
    parts: list[Floats] = []
    begin = 0
    for row, number in enumerate(rows.series):
        end = begin + len(at[number])
        made = rows.scales[row].back(scaled[begin:end].astype(np.float64))
        if row < len(rows.zeros) and rows.zeros[row].any():
            steps = np.asarray(at[number])[:, None] + np.arange(made.shape[1])
            made[rows.zeros[row][np.minimum(steps, len(rows.zeros[row]) - 1)]] = 0.0
        parts.append(made)
        begin = end
        if row + 1 == len(rows) or rows.series[row + 1] != number:
            yield np.concatenate(parts, axis=2)
            parts = []


def choose_share(
    model: Forecaster, run: Callable[[Ids, Ids], np.ndarray], part: EvaluationPart, rows: SeriesRows
) -> None:
    """Set the share of the network in the forecast to the one with the least median error on the validation set.

    With few horizons, chance makes some share a little better than the base forecast: it must be better by a margin.
    """
    at = part.origins(max(MOST_ORIGINS // len(rows), 8))
    which, ends = pairs(rows, at)
    target, middle = targets_after(rows, which, ends, part.horizon), model.quantiles.index(0.5)
    errors = {}
    for share in SHARES:
        model.share.fill_(share)
        errors[share] = float(np.nanmean(np.abs(run(which, ends)[..., middle] - target)))
    apart = sum((int(one[-1]) - int(one[0])) / part.horizon + 1 for one in at if len(one)) * len(rows) / len(at)
    best = min(errors, key=lambda share: errors[share])
    model.share.fill_(best if errors[best] < errors[0.0] * (1 - BEATEN / apart**0.5) else 0.0)


def targets_after(rows: SeriesRows, which: Ids, ends: Ids, horizon: int) -> np.ndarray:
    """Return the values that follow, (N, k, V), in the scale of the rows."""
    steps = (rows.offset.numpy()[which] + ends)[:, None] + np.arange(1, horizon + 1)
    found: np.ndarray = rows.targets.numpy()[steps]
    return found


def fit_intervals(model: Forecaster, part: EvaluationPart, rows: SeriesRows, scaled: np.ndarray, move: bool) -> None:
    """Fit the offsets of the quantiles and the usual one-step error; the model stores both."""
    which, ends = pairs(rows, part.origins())
    target, channel = targets_after(rows, which, ends, part.horizon), rows.channel.numpy()[which]
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


def with_intervals(model: Forecaster, rows: SeriesRows, which: Ids, scaled: np.ndarray) -> np.ndarray:
    """Return quantiles (N, k, V, Q) shifted by the offsets of their channels."""
    V, offsets, channel = model.sizes.variables, model.offsets.cpu().numpy(), rows.channel.numpy()[which]
    found = np.empty_like(scaled)
    for c in np.unique(channel):
        mine = channel == c
        found[mine] = PredictionIntervals(model.quantiles, offsets[:, c * V : (c + 1) * V]).apply(scaled[mine])
    return found


def first_forecast(
    model: Forecaster, rows: SeriesRows, part: EvaluationPart, run: Callable[[Ids, Ids], np.ndarray]
) -> str:
    """Return the first steps of the first forecast with prediction intervals, to print during training."""
    which, ends = (each[:1] for each in pairs(rows, part.origins()))
    made, came = (
        with_intervals(model, rows, which, run(which, ends)),
        targets_after(rows, which, ends, part.horizon)[..., None],
    )
    quantiles, true = (rows.scales[0].back(each.astype(np.float64))[0, :FEW, 0] for each in (made, came))
    name, middle = part.panel.series[rows.series[0]].id or part.panel.targets[0], model.quantiles.index(0.5)
    return "\n".join(
        f"{name}, {k} ahead → {q[middle]:.4g} in {q[0]:.4g} … {q[-1]:.4g}   it was {was[0]:.4g}"
        for k, (q, was) in enumerate(zip(quantiles, true, strict=True), 1)
    )


def score(part: EvaluationPart, quantiles: Sequence[float], forecasts: Iterable[Floats]) -> dict[str, Any]:
    """Score the forecasts of one series after the other."""
    tally = ForecastScores(tuple(quantiles), part.horizon)
    for number, (at, made) in enumerate(zip(part.origins(), forecasts, strict=True)):
        _add(tally, part, number, at, made)
    found = tally.scores()
    found["smape"] /= 100  # a share, as everywhere here
    return found


def _add(tally: ForecastScores, part: EvaluationPart, number: int, at: Ids, made: Floats) -> None:
    one, (begin, _) = part.panel.series[number], part.bounds(number)
    unit = mase_scales(one.values[:begin], part.season)
    train = part.splits[number].train  # another file than was learned from may be too short to have such a part
    deviation = deviations(one.values[: train if train > part.season else begin])
    for first in range(0, len(at), BLOCK):
        block = slice(first, first + BLOCK)
        tally.add(one.id, windows(one.values, at[block], part.horizon), made[block], unit, deviation)


FEWEST = 2
"""Horizons that must have come since the values that were learned from; with fewer, bands are those of the validation
part."""


def can_shift(task: ForecastTask, learned: Sequence[int], at: Sequence[Ids]) -> bool:
    """Return True if there are enough values before the first origin of each series, and an interval to shift."""
    if len(task.options.quantiles) == 1:
        return False
    least, needed = max(task.season, 2) + task.horizon, FEWEST * task.horizon
    return all(n >= least and len(one) and one[0] - n >= needed for n, one in zip(learned, at, strict=True))


def shifted_intervals(
    task: ForecastTask,
    model: Forecaster,
    known: tuple[SeriesRows, Sequence[int]],
    asked: tuple[SeriesRows, Sequence[Ids]],
    scaled: np.ndarray,
    panel: Panel,
) -> np.ndarray:
    """Return quantiles (N, k, V, Q) shifted by the errors of the forecasts before each origin.

    Forecasts before the first origin use rows that were fitted to the `known` values of each series. Both have one
    scale.
    """
    (before, learned), (rows, at) = known, asked
    earlier = [np.arange(n, one[0]) for n, one in zip(learned, at, strict=True)]
    most = max(MOST_ORIGINS // len(earlier), 1)
    earlier = [one[:: -(-len(one) // most)] for one in earlier]
    which, ends = pairs(before, earlier)
    made = task.forecast(model, before, which, ends)
    new, last = pairs(rows, at)
    came = [targets_after(*part, task.horizon) for part in ((before, which, ends), (rows, new, last))]
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
