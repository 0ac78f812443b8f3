"""Forecasts in use: tidy files, figures, series that are never negative or closed on known days, moved runs."""

from __future__ import annotations

import csv
import datetime
import io
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recur
from recur.cli.app import run
from recur.cli.task_flags import split_arguments, with_lists
from recur.data.series.evaluation import anomalies
from recur.errors import OptionError, TextError

QUICK: dict[str, Any] = {"task": "forecast", "threads": 1, "hidden_size": 8, "steps": 20, "baseline": False}


def shop(path: Path, days: int = 140, more: int = 0) -> Path:
    """Sales of a shop: none on Sundays, none on holidays, a few on other days."""
    draw = np.random.default_rng(0)
    rows = ["date,sales,open"]
    first = datetime.date(2024, 1, 1)
    for t in range(days + more):
        date = first + datetime.timedelta(t)
        holiday = t % 29 == 10
        closed = date.weekday() == 6 or holiday
        sales = 0 if closed else int(draw.poisson(2)) + 1
        rows.append(f"{date},{sales if t < days else ''},{0 if holiday else 1}")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_predictions_are_a_tidy_table_and_never_negative(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sundays and known holidays are 0, and no quantile is below 0 although the series is near it."""
    file = shop(tmp_path / "shop.csv")
    options = {"target": "sales", "covariates": "open", "horizon": 28, "season": 7, "holdout": 28}
    recur.fit(str(file), **QUICK, **options, quantiles=(0.1, 0.25, 0.5, 0.75, 0.9), out=tmp_path / "run")
    ahead = shop(tmp_path / "ahead.csv", more=28)
    figure = tmp_path / "f.png"
    assert run(["predict", str(tmp_path / "run"), str(ahead), "--figure", str(figure)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert list(rows[0]) == ["id", "date", "mean", "lo80", "hi80", "lo50", "hi50"]
    assert len(rows) == 28
    assert rows[0]["id"] == "sales"
    assert rows[0]["date"] == "2024-05-20"
    numbers = np.array([[float(row[name]) for name in ("lo80", "lo50", "mean", "hi50", "hi80")] for row in rows])
    assert (numbers >= 0).all()
    assert (np.diff(numbers) >= 0).all()
    closed = [datetime.date.fromisoformat(row["date"]).weekday() == 6 for row in rows]
    holidays = [(140 + k) % 29 == 10 for k in range(28)]
    for k, row in enumerate(numbers):
        assert (row == 0).all() == (closed[k] or holidays[k]), rows[k]
    assert figure.stat().st_size > 5000


def test_a_series_with_negative_values_is_left_alone(tmp_path: Path) -> None:
    y = np.sin(np.arange(120) / 3) * 5
    (tmp_path / "wave.csv").write_text("t,y\n" + "".join(f"{t},{v:.4f}\n" for t, v in enumerate(y)))
    model = recur.fit(str(tmp_path / "wave.csv"), **QUICK, horizon=12, season=1)
    found = [row["quantiles"]["0.1"] for row in model.predictions((tmp_path / "wave.csv").read_text().splitlines())]
    assert min(found) < 0


def test_anomalies_have_a_header_a_threshold_and_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    y = 10 + np.tile([0.0, 2.0, 1.0], 100) + draw.normal(size=300)
    text = "t,y\n" + "".join(f"{t},{v:.4f}\n" for t, v in enumerate(y))
    (tmp_path / "a.csv").write_text(text)
    model = recur.fit(str(tmp_path / "a.csv"), **QUICK, horizon=3, season=3, lags=9, out=tmp_path / "run")
    y[250], y[270], y[290] = 60, 90, 200
    (tmp_path / "b.csv").write_text("t,y\n" + "".join(f"{t},{v:.4f}\n" for t, v in enumerate(y)))
    given = ["predict", str(tmp_path / "run"), str(tmp_path / "b.csv"), "--anomalies"]
    assert run(given) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert list(rows[0]) == ["id", "date", "value", "expected", "score", "p_value", "anomaly"]
    assert len(rows) == 300 - 9, "values before the first whole window are not judged"
    p = {int(row["date"]): float(row["p_value"]) for row in rows}
    assert p[290] < p[250] < 0.001, "p-values rank beyond the largest error of the validation set"
    assert {int(row["date"]) for row in rows if row["anomaly"] == "1"} >= {250, 270, 290}
    assert run([*given, "--threshold", "0"]) == 0
    assert all(row["anomaly"] == "0" for row in csv.DictReader(io.StringIO(capsys.readouterr().out)))
    with pytest.raises(OptionError, match="a threshold is for anomalies"):
        list(model.predictions(text.splitlines(), threshold=0.1))
    with pytest.raises(TextError, match="too few to judge; 10 are needed"):
        list(model.predictions(["t,y", *(f"{t},1" for t in range(8))], anomalies=True))


def test_p_values_are_monotone_and_agree_with_shares() -> None:
    before = np.random.default_rng(0).standard_t(4, 512)
    sizes = np.linspace(0, 30, 500)
    p = anomalies(sizes, before).p_value
    assert (np.diff(p) < 0).all()
    shares = [(1 + (np.abs(before) >= size).sum()) / 513 for size in sizes]
    inside = sizes < np.abs(before).max()
    np.testing.assert_allclose(p[inside], np.array(shares)[inside], atol=2.5 / 513)


@pytest.mark.parametrize(
    "typed",
    [
        ["--covariates", "a", "b"],
        ["--covariates", "a,b"],
        ["--covariates=a,b"],
        ["--covariates", "a", "--covariates", "b"],
    ],
)
def test_columns_may_be_given_together(typed: list[str], tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("t,y\n1,2\n")
    expected = ["--covariates", "a", "--covariates", "b"]
    assert with_lists(["--task", "forecast", *typed, "--horizon", "3"])[2:6] == expected
    assert with_lists([str(file), *typed]) == [str(file), *expected]
    assert with_lists([*typed, str(file)]) == [*expected, str(file)], "what is a file is one"
    given = ["--task", "forecast", *typed, str(file), "--horizon", "3"]
    assert split_arguments(given).rest == [*expected, str(file), "--horizon", "3"]
    assert with_lists(["--quantiles", "0.1", "0.5", "0.9"])[::2] == ["--quantiles"] * 3


def test_a_moved_run_exports_and_evaluates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its texts are found by their digest around it, or where --allow-path says."""
    old, new = tmp_path / "old", tmp_path / "new" / "deep"
    (old / "data").mkdir(parents=True)
    new.mkdir(parents=True)
    y = [10 + 3 * math.sin(t / 2) + t % 4 for t in range(160)]
    (old / "data" / "a.csv").write_text("t,y\n" + "".join(f"{t},{v:.4f}\n" for t, v in enumerate(y)))
    options = {"horizon": 4, "season": 4, "base": "linear", "lags": 8}
    recur.fit(str(old / "data" / "a.csv"), **QUICK, **options, out=old / "runs" / "x")
    shutil.move(old / "runs" / "x", new / "x")
    lost = tmp_path / "lost.csv"
    shutil.move(old / "data" / "a.csv", lost)
    capsys.readouterr()
    assert run(["eval", str(new / "x"), "--json"]) == 2
    assert "--allow-path" in capsys.readouterr().err
    assert run(["export", str(new / "x"), str(tmp_path / "f.h"), "--to", "c"]) == 2
    capsys.readouterr()
    for command in (["eval", str(new / "x")], ["export", str(new / "x"), str(tmp_path / "f.h"), "--to", "c"]):
        assert run([*command, "--allow-path", str(lost), "--json"]) == 0, capsys.readouterr().err
    (tmp_path / "new" / "data").mkdir()
    shutil.move(lost, tmp_path / "new" / "data" / "a.csv")
    assert run(["eval", str(new / "x"), "--json"]) == 0, capsys.readouterr().err
