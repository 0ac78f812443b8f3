"""Rules that choose the open options of the forecast task from the data.

No rule reads the test set, except to check that its values are positive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recur.baselines.forecasts import BaselineForecast, SeasonalNaive, fit_autoregressions
from recur.data.series import Panel, Series, deviations, fill, origins, windows
from recur.data.series.panel import panel_seasons
from recur.data.text.stream import Floats
from recur.errors import OptionError
from recur.tasks.forecast.options import ForecastOptions

MANY = 20
"""Series from which on a panel is one: they are learned from together, and each is held out of by one horizon."""

MOST_CHECKED = 200
"""Origins from which base forecasts are compared."""

WHOLE_CYCLES = 3
"""How often a year must have passed before the week of the year is an input, and so on."""

MOST_HELD = 1000
"""Steps held out of a long series, unless a horizon needs more."""


def settle_options(o: ForecastOptions, panel: Panel, ahead: int) -> ForecastOptions:
    """Return options without open choices; `ahead` is the number of values in test files, 0 without any."""
    season = o.season or _season(o, panel, ahead)
    horizon = o.horizon or ahead or season
    many = len(panel) >= MANY
    held = _held(o, panel, ahead, season)
    valid, test = o.valid_size or held, o.test_size or ahead or held
    o = o.changed(season=season, horizon=horizon, holdout=held, valid_size=valid, test_size=test)
    learned = [o.train_size or max(len(one) - valid - test, 0) for one in panel.series]
    typical = int(np.median(learned))
    if o.lags is None:
        o = _with_network(o, typical)
    fields: dict[str, object] = {}
    if o.level is None:
        fields["level"] = "last" if o.lags and o.segment else "season"
    if o.window is None:
        fields["window"] = max(4 * season, 48)
    if o.bands is None:
        fields["bands"] = "conformal" if many else "rolling"
    counts = o.distribution == "negative-binomial"
    if o.scale is None:
        fields["scale"] = "mean" if counts else "changes" if many else "deviation"
    if o.calendar is None:
        fields["calendar"] = has_seen_its_calendar(panel, learned)
    return _with_base(o.changed(**fields), panel, learned, many)


def _held(o: ForecastOptions, panel: Panel, ahead: int, season: int) -> int:
    """A forecast from two or three origins would be judged by chance, unless there are many series."""
    horizon, shortest = o.horizon or ahead or season, int(panel.lengths.min()) - ahead
    return o.holdout or (horizon if len(panel) >= MANY else max(2 * horizon, min(shortest // 10, MOST_HELD)))


def _season(o: ForecastOptions, panel: Panel, ahead: int) -> int:
    """Of what stands before the test part, which may be the longer the longer a season is: looked for again where one
    is found that holds out more."""
    season = 1
    while True:
        held = _held(o, panel, ahead, season)
        first = None if o.train_size is None else o.train_size + (o.valid_size or held)
        test = o.test_size or ahead or held
        seen = [max(len(one) - test if first is None else min(first, len(one)), 1) for one in panel.series]
        found = (panel_seasons(panel, seen) or (1,))[0]
        if _held(o, panel, ahead, found) <= held:
            return found
        season = found


def _with_base(o: ForecastOptions, panel: Panel, learned: Sequence[int], many: bool) -> ForecastOptions:
    """What the network adds to, and whether values or their logarithms are looked at: of a few series, what forecasts
    the validation part best by itself; many series are learned from together, each relative to its own level."""
    logs = o.transform in ("log", None) and o.distribution != "negative-binomial"
    logs = logs and all(bool((one.values[one.observed] > 0).all()) for one in panel.series)
    if many and o.base in (None, "none"):
        first = [one.until(n) for one, n in zip(panel.series, learned, strict=True)]
        transform = o.transform or ("log" if logs and grows_with_level(first) else "none")
        return o.changed(base="none", transform=transform)
    found: dict[tuple[str, str], float] = {}
    for transform in ("none", "log") if logs else ("none",):
        for base in ("linear", "seasonal") if (o.season or 1) > 1 else ("linear",):
            if o.transform in (None, transform) and o.base in (None, base):
                error = base_error(panel, learned, o, base, transform)
                if error is not None:
                    found[base, transform] = error
    # What is said first is the simplest, and gives way to what is better by more than chance.
    best = min(found, key=lambda which: found[which] * (1.05 if which[1] == "log" else 1.0), default=("none", "none"))
    return o.changed(base=o.base or best[0], transform=o.transform or best[1])


def base_error(panel: Panel, learned: Sequence[int], o: ForecastOptions, base: str, transform: str) -> float | None:
    """Of a base forecast from what is learned from, on the validation part: the mean absolute error in deviations; None
    where a series is too short for it."""
    k, m, valid = o.horizon or 1, o.season or 1, o.valid_size or 1
    if min(learned) <= m or valid < k:
        return None
    filled = [fill(one.values[: n + valid], m) for one, n in zip(panel.series, learned, strict=True)]
    seen = [np.log(values) if transform == "log" else values for values in filled]
    plain: Sequence[BaselineForecast | None] = [SeasonalNaive(m)] * len(seen)
    if base == "linear":
        try:
            plain = fit_autoregressions(seen, k, (m,) if m > 1 else (), list(learned))
        except OptionError:
            return None
    errors = []
    for forecast, values, true, n in zip(plain, seen, filled, learned, strict=True):
        at = origins(n, len(values), k)
        if forecast is None or not len(at):
            return None
        at = at[:: -(-len(at) // MOST_CHECKED)]
        made = forecast(values, at, k)
        made = np.exp(np.minimum(made, 700.0)) if transform == "log" else made
        errors.append(np.abs(made - windows(true, at, k)).mean((0, 1)) / deviations(true[:n]))
    return float(np.mean(errors))


def _with_network(o: ForecastOptions, n: int) -> ForecastOptions:
    """A window in segments where the series are long enough to have many; a state for short ones, and where options ask
    for one."""
    m, k = o.season or 1, o.horizon or 1
    asked = o.recurrence == "output" or o.strategy == "iterated" or o.bptt != "full" or o.window is not None
    lags = max(4 * m, 2 * k) if m > 1 else max(4 * k, 16)
    if asked or n < 3 * lags:
        return o.changed(lags=0)
    segment = o.segment if o.segment is not None else (m if 6 < m <= 48 else max(min(k, lags // 4), 1))
    return o.changed(lags=-(-lags // segment) * segment if segment else lags, segment=segment)


def has_seen_its_calendar(panel: Panel, learned: Sequence[int]) -> bool:
    """Return True if every cycle of the dates occurs three times in the training part of each series."""
    shortest = int(np.argmin(learned))
    found = panel.calendar(panel.series[shortest], learned[shortest], "circle")
    if not found.shape[1] or len(found) < 2:
        return False
    angles = np.unwrap(np.arctan2(found[:, ::2], found[:, 1::2]), axis=0)
    return bool((angles[-1] - angles[0] > WHOLE_CYCLES * 2 * np.pi * (1 - 1 / len(found))).all())


def grows_with_level(series: Sequence[Series]) -> bool:
    """Return True if changes grow with the level of positive values.

    The slope of log |change| over log level, block by block, is above ½: a logarithm then makes the changes even.
    """
    top, bottom = 0.0, 0.0
    for one in series:
        for column in fill(one.values).T:
            blocks = _blocks(column)
            if len(blocks) > 2:
                level, change = np.log(blocks).T
                level = level - level.mean()
                top, bottom = top + float(level @ (change - change.mean())), bottom + float(level @ level)
    return bottom > 1e-3 and top > 0.5 * bottom


def _blocks(column: Floats) -> Floats:
    """(blocks, 2): the mean, and the mean change from step to step, of about eight parts of a series."""
    parts = [part for part in np.array_split(column, min(8, max(len(column) // 6, 1))) if len(part) > 2]
    found = np.array([[part.mean(), np.abs(np.diff(part)).mean()] for part in parts]).reshape(-1, 2)
    return found[(found > 0).all(1)]
