"""Bands of 80 % around a linear autoregression, series by series: fitted to the validation part once, or again at every
origin to all that has come since what was learned from.

Each series is split as `recur train` splits it: two horizons, or a tenth of it if that is more, to test on, and as much
before that to fit bands to. Of every origin of the test part whose horizon lies in it: the share of values that lie
inside, how wide the bands are, and the interval score (width, and ten times how far a value lies outside).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recur.baselines.forecasts import choose_autoregression, fit_in_form
from recur.data.series import PredictionIntervals, read_panel, rolling_intervals, windows
from recur.data.text.stream import Floats

QUANTILES = (0.1, 0.5, 0.9)
LONG, SHORT = 600, 150


class One(NamedTuple):
    group: str
    values: Floats
    """(n,)"""
    season: int
    horizon: int


def series(data: Path) -> Iterator[One]:
    """Weeks of M4 and pieces of them, days and quarters of days of ETTh2, and two single ones."""
    weeks = [one.values[:, 0] for one in read_panel([str(data / "m4/weekly-train.csv")]).series]
    for y in weeks:
        if len(y) >= LONG:
            yield One("M4 weeks, 13 ahead", y, 1, 13)
            yield One("their last 150, 13 ahead", y[-SHORT:], 1, 13)
            yield One("their last 150, 6 ahead", y[-SHORT:], 1, 6)
            yield One("means of four, 13 ahead", y[: len(y) // 4 * 4].reshape(-1, 4).mean(1)[-200:], 13, 13)
    (hours,) = (one.values for one in read_panel([str(data / "ett/ETTh2.csv")]).series)
    days, parts = (hours[: len(hours) // n * n].reshape(-1, n, hours.shape[1]).mean(1) for n in (24, 6))
    for c in range(hours.shape[1]):
        yield One("ETTh2 by the day, 7 ahead", days[:, c], 7, 7)
        yield One("ETTh2 by six hours, 8 ahead", parts[:, c], 4, 8)
        for begin in range(0, len(days) - SHORT + 1, SHORT):
            yield One("150 days of ETTh2, 7 ahead", days[begin : begin + SHORT, c], 7, 7)
    for name, season, horizon in (("airline", 12, 12), ("sunspots", 10, 5)):
        yield One(name, read_panel([str(data / f"series/{name}.csv")]).series[0].values[:, 0], season, horizon)


class Measured(NamedTuple):
    coverage: float
    width: float
    score: float


def measured(one: One) -> tuple[Measured, Measured]:
    """Of bands that are fitted once, and again and again."""
    values, k = one.values[:, None], one.horizon
    held = max(2 * k, len(values) // 10)
    train, valid, end = len(values) - 2 * held, len(values) - held, len(values)
    form = choose_autoregression([values[:valid]], k, (one.season,) if one.season > 1 else (), [train])
    at = np.arange(train, end - k + 1)
    first = int(np.searchsorted(at, valid))
    made: list[Floats] = []
    for seen, part in ((train, at[:first]), (valid, at[first:])):
        fitted = fit_in_form(values[:seen], k, form)
        assert fitted is not None
        made.append(fitted(values, part, k))
    forecast = np.repeat(np.concatenate(made)[..., None], len(QUANTILES), -1)
    target = windows(values, at, k)
    whole = at[:first] + k <= valid
    once = PredictionIntervals.fit(target[:first][whole], forecast[:first][whole], QUANTILES).apply(forecast[first:])
    again = rolling_intervals(target, forecast, QUANTILES, first)
    return _of(once, target[first:]), _of(again, target[first:])


def _of(bands: Floats, target: Floats) -> Measured:
    low, high = bands[..., 0], bands[..., -1]
    outside = np.maximum(low - target, 0) + np.maximum(target - high, 0)
    share = QUANTILES[-1] - QUANTILES[0]
    score = high - low + 2 / (1 - share) * outside
    return Measured(float((outside == 0).mean()), float((high - low).mean()), float(score.mean()))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    groups: dict[str, list[tuple[Measured, Measured]]] = {}
    for one in series(options.data):
        groups.setdefault(one.group, []).append(measured(one))
    print("bands of 80 %, fitted once / rolling: coverage, its mean distance from 80 %, series with 60 % or more")
    found = []
    for name, pairs in groups.items():
        covered = np.array([[once.coverage, again.coverage] for once, again in pairs])
        score = float(np.exp(np.mean([np.log(again.score / once.score) for once, again in pairs])))
        width = float(np.exp(np.mean([np.log(again.width / once.width) for once, again in pairs])))
        away, enough = np.abs(covered - 0.8).mean(0), (covered >= 0.6).mean(0)
        cells = [f"{a:6.1%} / {b:.1%}" for a, b in (covered.mean(0), away, enough)]
        print(f"{name:<30}{len(pairs):>4}  {'  '.join(cells)}  width × {width:.2f}, interval score × {score:.3f}")
        row: dict[str, Any] = {"series": name, "count": len(pairs), "coverage": covered.mean(0).tolist()}
        found.append(row | {"away": away.tolist(), "enough": enough.tolist(), "width": width, "score": score})
    return found
