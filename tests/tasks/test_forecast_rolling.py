"""Bands that go on with a series: by hand, origin after origin, and where a series changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recur
from recur.data.series import PredictionIntervals
from recur.tasks.forecast import evaluation
from recur.tasks.forecast.task import read_series
from tests.tasks.test_forecast_parts import noise, settled, wide

FIELDS: dict[str, Any] = {"task": "forecast", "season": 1, "horizon": 3, "threads": 1, "hidden_size": 4, "steps": 6}


def long(path: Path, series: dict[str, tuple[int, Any]]) -> str:
    """Ids, each with its first step and values (n, 2)."""
    rows = [f"{key},{start + t},{a},{b}\n" for key, (start, rows) in series.items() for t, (a, b) in enumerate(rows)]
    path.write_text("id,t,a,b\n" + "".join(rows))
    return str(path)


@pytest.mark.parametrize("mix", [False, True])
def test_eval_fits_them_to_what_came_before_each_origin(mix: bool, tmp_path: Path) -> None:
    """Two series of two variables, the second of which begins later: what one is known to have missed serves both."""
    draw = np.random.default_rng(0)
    values = {
        "x": (0, draw.normal(20, 3, (70, 2)) * [1, 40]),
        "z": (4, draw.normal(9, 2, (60, 2)) * [1, 40]),
    }
    path = long(tmp_path / "two.csv", values)
    given = {"id": "id", "date": "t", "target": ["a", "b"], "layout": "long", "holdout": 12, "mix": mix}
    model = recur.fit(path, base="none", bands="rolling", **FIELDS, **given)
    task, (panel, _) = model.task, read_series(model.task.options)
    assert [one.start for one in panel.series] == [0, 4]
    splits = task.splits(panel)
    trained, before = [s.train for s in splits], [s.valid for s in splits]
    at = task.part(panel, splits, "test").origins()
    found = model._quantiles(panel, trained, before, at, trained)

    rows = task.rows(model.model, panel, model.run.vocabs, trained, before)  # without a base, nothing else is fitted
    whole = [np.arange(s.train, s.test - 2) for s in splits]
    which, ends = evaluation.pairs(rows, whole)
    scaled, came = task.forecast(model.model, rows, which, ends), evaluation.targets_after(rows, which, ends, 3)
    forecasts: dict[tuple[int, int, int], Any] = {}  # by variable, series and origin: the forecast, and what came
    for r, end, made, true in zip(which, ends, scaled, came, strict=True):
        for v in range(made.shape[1]):
            variable = v if mix else int(rows.channel[r])
            forecasts[variable, rows.series[r], int(end) + 1] = made[:, v].astype(float), true[:, v].astype(float)
    for number in range(2):
        for k, origin in enumerate(at[number]):
            now = panel.series[number].start + origin
            known = sorted({(s, o) for _, s, o in forecasts if panel.series[s].start + o < now})
            target, made = np.full((len(known), 3, 2), np.nan), np.empty((len(known), 3, 2, 3))
            for i, (s, o) in enumerate(known):
                for v in range(2):
                    made[i, :, v], true = forecasts[v, s, o]
                    there = panel.series[s].start + o + np.arange(3) < now
                    target[i, there, v] = true[there]
            bands = PredictionIntervals.fit(target, made, (0.1, 0.5, 0.9))
            asked = np.stack([forecasts[v, number, origin][0] for v in range(2)], axis=1)
            expected = bands.apply(asked)
            for v in range(2):
                scale = next(
                    rows.scales[r]
                    for r in range(len(rows))
                    if rows.series[r] == number and (mix or int(rows.channel[r]) == v)
                )
                in_units = expected[:, v] * scale.unit[v if mix else 0] + scale.mean[v if mix else 0]
                assert found[number][k, :, v] == pytest.approx(np.maximum(in_units, 0), rel=1e-5)


def changing(length: int, since: int, factor: float = 4.0) -> Any:
    y = np.random.default_rng(1).normal(0, 1, length)
    y[since:] *= factor
    return np.round(100 + y, 4)


def test_they_follow_a_series_that_changes(tmp_path: Path) -> None:
    """Errors four times as large from the first test value on: of 200, those that came widen the bands."""
    path = wide(tmp_path / "y.csv", changing(700, 500))
    lines = Path(path).read_text().splitlines()
    covered, widths = {}, {}
    for bands in ("rolling", "conformal"):
        model = recur.fit(path, bands=bands, valid_size=40, test_size=200, **FIELDS)
        covered[bands] = float(model.evaluate()["coverage"])
        rows = [row["quantiles"] for row in model.predictions(lines)]
        widths[bands] = np.array([row["0.9"] - row["0.1"] for row in rows])
    assert covered["conformal"] < 0.4
    assert covered["rolling"] > 0.6
    expected = 2 * 1.2816 * 4.0  # of normal errors with a deviation of 4, nearly all that have come
    assert widths["rolling"] == pytest.approx(expected, rel=0.25)
    assert (widths["conformal"] < 0.7 * expected).all()  # in deviations of the series, which are larger now too


def test_too_little_has_come_then_they_are_those_of_the_validation_part(tmp_path: Path) -> None:
    path = wide(tmp_path / "y.csv", noise(80))
    models = [recur.fit(path, bands=bands, holdout=10, **FIELDS) for bands in ("rolling", "conformal")]
    short = wide(tmp_path / "short.csv", noise(22))  # 2 before what is held out
    lines = Path(short).read_text().splitlines()
    a, b = ([row["quantiles"] for row in model.predictions(lines)] for model in models)
    assert a == b
    task = models[0].task
    assert not evaluation.can_shift(task, [2], [np.array([22])])
    assert not evaluation.can_shift(task, [60], [np.array([65])])
    assert evaluation.can_shift(task, [60], [np.array([66])])


def test_few_series_have_them_and_panels_do_not(tmp_path: Path) -> None:
    assert settled(texts=wide(tmp_path / "y.csv", noise(80)), season=1, horizon=3).options.bands == "rolling"
    header = ",".join(f"V{k}" for k in range(1, 42)) + "\n"
    (tmp_path / "many.csv").write_text(header + "".join(f"s{k},{','.join(map(str, noise(40)))}\n" for k in range(20)))
    many = settled(texts=str(tmp_path / "many.csv"), layout="rows", season=1, horizon=3)
    assert many.options.bands == "conformal"
