"""Forecasting: stopped runs go on exactly, what can be learned is, every layout is read, bands cover, mistakes are
refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recur
from recur.data.series import Series, parse_panel, read_panel
from recur.errors import OptionError, RunError, TextError
from recur.tasks import make_options, open_predictor, task_class, task_of
from recur.tasks.forecast.rules import grows_with_level, has_seen_its_calendar
from recur.training import Trainer
from tests.small_runs import begin, reopen, stop_after

SMALL: dict[str, Any] = {
    "hidden_size": 12,
    "batch_size": 16,
    "threads": 1,
    "eval_every": 0.1,
    "lr": 0.02,
    "warmup_steps": 5,
}

CASES: dict[str, dict[str, Any]] = {
    "window": {"horizon": 3, "season": 4, "lags": 6, "transform": "log"},
    "iterated": {"horizon": 3, "season": 4, "strategy": "iterated", "window": 10, "target": ["a", "b"]},
    "state": {"horizon": 3, "season": 4, "lags": 0, "window": 10, "distribution": "student"},
    "segments": {"horizon": 5, "season": 4, "lags": 8, "segment": 4, "cell": "lstm", "base": "seasonal"},
    "mixed": {"horizon": 3, "season": 4, "lags": 8, "segment": 2, "mix": True, "spread": True, "base": "none"},
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wave = 10 + np.tile([1.0, 5.0, 2.0, 3.0], 20) + 0.1 * np.arange(80)
    path = tmp_path_factory.mktemp("files") / "wave.csv"
    path.write_text("t,a,b\n" + "".join(f"{t},{y:.3f},{2 * y:.3f}\n" for t, y in enumerate(wave)))
    return path


def make(path: Path, table: Path, case: str, **more: Any) -> Trainer:
    return begin(path, task="forecast", texts=str(table), **(SMALL | CASES[case] | more))


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(case: str, table: Path, tmp_path: Path) -> None:
    straight = make(tmp_path / "a", table, case, steps=12)
    straight.train()
    stop_after(make(tmp_path / "b", table, case, steps=12), 5)
    torch.manual_seed(99)
    resumed = reopen(tmp_path / "b")
    resumed.train()
    assert resumed.step == straight.step == 12
    for a, b in zip(straight.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert straight.best_metrics == resumed.best_metrics


@pytest.mark.parametrize("case", CASES)
def test_a_wave_is_forecast_better_than_by_repeating_it(case: str, table: Path, tmp_path: Path) -> None:
    make(tmp_path / "run", table, case, steps=200, lr=0.01, eval_every=0.0).train()
    opened = recur.load(tmp_path / "run")
    found = opened.evaluate(figure=tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 5000
    seasonal = next(row for row in found["beside"] if row["model"] == "seasonal naive")
    assert found["mase"] < 0.7 * seasonal["mase"]  # it rises, and a season before it was lower
    assert found["nominal_coverage"] == pytest.approx(0.8)
    rows = list(opened.predictions(table.read_text().splitlines()))
    horizon = CASES[case]["horizon"]
    assert [row["input"] for row in rows[:3]] == ["a 80", "b 80", "a 81"]
    assert len(rows) == 2 * horizon
    for row in rows:
        assert row["quantiles"]["0.1"] <= row["quantiles"]["0.5"] <= row["quantiles"]["0.9"]
        true = (10 + [1, 5, 2, 3][(row["step"] - 1) % 4] + 0.1 * (79 + row["step"])) * (1 + (row["target"] == "b"))
        assert row["quantiles"]["0.5"] == pytest.approx(true, rel=0.08)


def test_all_origins_at_once_are_each_by_itself(table: Path, tmp_path: Path) -> None:
    """What is measured in one pass is what `predict` says of a file that ends there, but for what it is scaled by."""
    for case in ("state", "segments", "window"):
        task = task_class("forecast")
        options = task.settle(make_options("forecast", {"texts": str(table), **SMALL, **CASES[case]}))
        whole = task(options)
        data = whole.read()
        torch.manual_seed(0)
        model = whole.new_model(data.vocabs).eval()
        for part in model.parameters():
            torch.nn.init.normal_(part, std=0.2)
        ends = np.array([30, 41, 55])
        together = whole.forecast(model, data.rows, np.array([1, 1, 0]), ends)
        for k, (row, end) in enumerate(zip([1, 1, 0], ends, strict=True)):
            one = whole.forecast(model, data.rows, np.array([row]), np.array([end]))
            np.testing.assert_allclose(together[k], one[0], rtol=1e-5, atol=1e-5)


def test_covariates_that_are_known_ahead_are_used(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 2, 83)
    rows = [f"{t},{'' if t >= 80 else 5 + 3 * x[t]},{x[t]}" for t in range(83)]
    path = tmp_path / "known.csv"
    path.write_text("t,y,x\n" + "\n".join(rows[:80]) + "\n")
    options: dict[str, Any] = {"task": "forecast", "target": ["y"], "covariates": ["x"], "horizon": 3}
    more: tuple[dict[str, Any], ...] = ({"lags": 2}, {"lags": 4, "segment": 2}, {"lags": 0, "window": 8})
    for network in more:
        model = recur.fit(str(path), hidden_size=8, lr=0.02, steps=400, threads=1, **options, **network)
        assert model.evaluate()["mase"] < 0.15, network  # nothing but the covariate tells them
        made = [float(row["output"]) for row in model.predictions(["t,y,x", *rows])]
        assert made == pytest.approx([5 + 3 * x[t] for t in (80, 81, 82)], abs=0.5)
        with pytest.raises(TextError, match="known 0 steps ahead, and --horizon is 3"):
            list(model.predictions(["t,y,x", *rows[:80]]))


def long_table(path: Path, series: int = 6, steps: int = 60) -> Path:
    """Series of a level each, half of them a season's turn apart, with gaps, and with what is known of them."""
    draw = np.random.default_rng(1)
    lines = ["id,date,sales,kind,wind"]
    for k in range(series):
        for t in range(steps + k):
            y = 100 * (k + 1) * (1 + 0.3 * ((t + 2 * (k % 2)) % 4 == 0)) + draw.normal()
            cell = "" if t % 13 == 5 else f"{y:.2f}"
            lines.append(f"s{k},2020-{1 + t // 28:02}-{1 + t % 28:02},{cell},{'ab'[k % 2]},{draw.normal():.2f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_long_table_with_gaps_statics_and_what_is_known_until_now(tmp_path: Path) -> None:
    path = long_table(tmp_path / "sales.csv")
    run = begin(tmp_path / "run", task="forecast", texts=str(path), horizon=4, season=4, steps=60, **SMALL)
    assert run.task.describe(run.data).startswith("6 series (s0, s1, s2, s3, s4, …) of 64 to 69 values")
    run.train()
    model = recur.load(tmp_path / "run")
    assert {"static kind a", "static kind b"} <= set(model.run.vocabs["known"].tokens)
    assert {"covariate wind", "gaps"} <= set(model.run.vocabs["past"].tokens)
    found = model.evaluate()
    assert np.isfinite([found[name] for name in ("mase", "smape", "mse", "mae", "wql", "coverage")]).all()
    rows = list(model.predictions(path.read_text().splitlines()))
    assert len(rows) == 6 * 4
    assert {row["series"] for row in rows} == {f"s{k}" for k in range(6)}
    assert rows[0]["date"].startswith("2020-03-05")


def test_a_row_a_series_with_a_test_file_and_several_runs_as_one(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    ids = [f"W{k}" for k in range(24)]
    series = {k: 100 * np.exp(np.cumsum(draw.normal(0.01, 0.02, 40 + 3 * n))) for n, k in enumerate(ids)}

    def write(name: str, part: slice) -> str:
        rows = [",".join([k, *(f"{v:.4f}" for v in y[part])]) for k, y in series.items()]
        width = max(row.count(",") for row in rows)
        (tmp_path / name).write_text(",".join(f"V{j + 1}" for j in range(width + 1)) + "\n" + "\n".join(rows) + "\n")
        return str(tmp_path / name)

    train, test = write("train.csv", slice(None, -5)), write("test.csv", slice(-5, None))
    for seed in (0, 1):
        begin(tmp_path / f"r{seed}", task="forecast", texts=train, test=test, steps=20, seed=seed, **SMALL).train()
    options = recur.load(tmp_path / "r0").task.options
    assert (options.horizon, options.test_size, options.valid_size) == (5, 5, 5)
    assert (options.transform, options.scale, options.base) == ("log", "changes", "none")
    both = open_predictor([tmp_path / "r0", tmp_path / "r1"])
    found = both.evaluate()
    assert found["origins"] == 24
    naive = next(row for row in found["beside"] if row["model"] == "naive")
    assert naive["owa"] == pytest.approx(1.0)
    ratios = [found[name] / naive[name] for name in ("smape", "mase")]
    assert found["owa"] == pytest.approx(np.mean(ratios))
    lines = Path(train).read_text().splitlines()
    each = [[row["quantiles"]["0.9"] for row in recur.load(tmp_path / f"r{k}").predictions(lines)] for k in (0, 1)]
    together = [row["quantiles"]["0.9"] for row in both.predictions(lines)]
    assert together == pytest.approx(np.mean(each, axis=0))


def test_bands_cover_what_they_say_and_a_spike_is_an_anomaly(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    y = 10 + np.tile([0.0, 2.0, 1.0], 300) + draw.standard_t(4, 900)
    path = tmp_path / "noise.csv"
    path.write_text("t,y\n" + "".join(f"{t},{v:.4f}\n" for t, v in enumerate(y)))
    options: dict[str, Any] = {"horizon": 3, "season": 3, "holdout": 250, "threads": 1, "hidden_size": 8, "steps": 40}
    model = recur.fit(str(path), task="forecast", bands="conformal", **options)
    found = model.evaluate()
    assert found["coverage"] == pytest.approx(0.8, abs=0.06)  # two deviations of a share of 250 that hang together
    y[700] += 12
    judged = list(model.predictions(["t,y", *(f"{t},{v:.4f}" for t, v in enumerate(y))], anomalies=True))
    assert len(judged) == 900 - 12, "four seasons are read first"
    worst = max(judged, key=lambda row: abs(row["score"]))
    assert worst["row"] == 701
    assert worst["p_value"] < 0.01
    assert np.mean([row["p_value"] <= 0.1 for row in judged]) == pytest.approx(0.1, abs=0.04)


@pytest.mark.parametrize("name", ["gaussian", "student", "negative-binomial"])
def test_distributions_are_learned(name: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rate = np.tile([3.0, 30.0, 10.0], 60)
    path = tmp_path / "counts.csv"
    path.write_text("t,y\n" + "".join(f"{t},{v}\n" for t, v in enumerate(draw.poisson(rate))))
    options: dict[str, Any] = {
        "horizon": 3,
        "season": 3,
        "threads": 1,
        "hidden_size": 12,
        "steps": 150,
        "bands": "model",
    }
    model = recur.fit(str(path), task="forecast", distribution=name, lags=0, base="none", **options)
    found = model.evaluate()
    naive = next(row for row in found["beside"] if row["model"] == "seasonal naive")
    assert found["mase"] < 0.9 * naive["mase"]
    assert 0.6 < found["coverage"] < 0.98
    if name == "negative-binomial":
        rows = list(model.predictions(path.read_text().splitlines()))
        assert all(
            value == pytest.approx(round(value), abs=1e-3) for row in rows for value in row["quantiles"].values()
        )


def test_parts_of_unequal_length_and_what_is_left_over(table: Path, tmp_path: Path) -> None:
    sizes = {"train_size": 40, "valid_size": 15, "test_size": 12}
    run = make(tmp_path / "run", table, "segments", steps=2, **sizes)
    assert run.data.splits[0] == (40, 55, 67)
    run.train()
    found = recur.load(tmp_path / "run").evaluate()
    assert found["origins"] == 12 - 5 + 1
    # Errors on standardised values, as published: by the deviation of the training part.
    values = read_panel([str(table)]).series[0].values
    at = np.arange(55, 67 - 5 + 1)
    error = values[at[:, None] + np.arange(5)] - values[at - 1][:, None]
    naive = next(row for row in found["beside"] if row["model"] == "naive")
    assert naive["mse"] == pytest.approx(float(((error / values[:40].std(0)) ** 2).mean()))


def test_what_is_decided_from_the_data(tmp_path: Path) -> None:
    def settled(y: np.ndarray, **fields: Any) -> Any:
        path = tmp_path / "y.csv"
        path.write_text("t,y\n" + "".join(f"{t},{v:.6f}\n" for t, v in enumerate(y)))
        return task_class("forecast").settle(make_options("forecast", {"texts": str(path), **fields}))

    draw = np.random.default_rng(0)
    t = np.arange(1200)
    wave = np.sin(2 * np.pi * t / 24) + 0.1 * draw.normal(size=1200)
    o = settled(wave)
    assert (o.season, o.horizon, o.lags, o.segment, o.level) == (24, 24, 96, 24, "last")
    assert (o.base, o.transform, o.scale, o.holdout) == ("linear", "none", "deviation", 120)
    assert settled(wave, lags=0).segment is None
    assert settled(wave, strategy="iterated").lags == 0
    o = settled(draw.normal(size=60).cumsum())
    assert (o.season, o.horizon, o.transform, o.lags) == (1, 1, "none", 16)
    assert settled(draw.normal(size=40).cumsum()).lags == 0


@pytest.mark.parametrize(("power", "logs"), [(1.0, True), (0.0, False)])
def test_logarithms_where_changes_grow_with_values(power: float, logs: bool) -> None:
    draw = np.random.default_rng(2)
    y = [100.0]
    for _ in range(300):
        y.append(y[-1] + 1 + 0.02 * y[-1] ** power * 100 ** (1 - power) * draw.normal())
    empty = np.zeros((301, 0))
    assert grows_with_level([Series("y", np.array(y)[:, None], empty, empty, np.zeros(0))]) is logs


def test_the_network_falls_back_to_its_base_where_it_is_worse(tmp_path: Path) -> None:
    """A straight line with noise-free seasons is what the autoregression has exactly: nothing may be added to it."""
    path = tmp_path / "line.csv"
    y = np.tile([1.0, 4.0, 2.0, 8.0], 40) + 0.5 * np.arange(160)
    path.write_text("t,y\n" + "".join(f"{t},{v}\n" for t, v in enumerate(y)))
    trainer = begin(tmp_path / "run", task="forecast", texts=str(path), horizon=4, season=4, steps=30, **SMALL)
    trainer.train()
    assert trainer.best_metrics["valid_share"] == 0.0
    assert trainer.best_metrics["valid_mase"] < 1e-3
    assert recur.load(tmp_path / "run").evaluate()["mase"] < 1e-3


def test_what_is_wrong_is_refused_in_words(table: Path, tmp_path: Path) -> None:
    def read(**fields: Any) -> None:
        task_of(make_options("forecast", fields)).read()

    texts = str(table)
    with pytest.raises(OptionError, match="has 80 values; 80 for the test and 80 for validation leave 0 for training"):
        read(texts=texts, horizon=40)
    with pytest.raises(OptionError, match="--valid belongs to .*; the task here is forecast"):
        read(texts=texts, valid=texts)
    with pytest.raises(OptionError, match="--cell is for a state; --lags 3 has none"):
        read(texts=texts, lags=3, cell="lstm")
    with pytest.raises(OptionError, match="--segment is for a window; --lags 0 carries a state"):
        read(texts=texts, lags=0, segment=3)
    with pytest.raises(OptionError, match="for counts as they are"):
        read(texts=texts, distribution="negative-binomial", transform="log")
    with pytest.raises(TextError, match="has values that are no counts"):
        read(texts=texts, distribution="negative-binomial", scale="mean", horizon=3)
    (tmp_path / "low.csv").write_text("t,y\n" + "".join(f"{t},{t % 5}\n" for t in range(60)))
    with pytest.raises(TextError, match="low: row 1: y is 0, which has no logarithm"):
        read(texts=str(tmp_path / "low.csv"), transform="log", horizon=3)
    make(tmp_path / "run", table, "window", steps=1).train()
    model = recur.load(tmp_path / "run")
    with pytest.raises(RunError, match="no list 'known' of what its network reads: an older one; train it again"):
        model.task.new_model({"columns": model.run.vocabs["columns"]})
    with pytest.raises(TextError, match="has the columns a, c, where what was learned from has a, b"):
        list(model.predictions(["t,a,c", *(f"{t},1,2" for t in range(20))]))
    with pytest.raises(TextError, match="4 values are too few to forecast from; 5 are needed"):
        list(model.predictions(["t,a,b", *(f"{t},{t + 1},2" for t in range(4))]))
    assert json.dumps(model.evaluate())


@pytest.mark.parametrize(("begin", "days", "seen"), [("2015-01-01", 3 * 366, True), ("2015-01-01", 2 * 366, False)])
def test_the_calendar_is_an_input_once_it_has_come_round_three_times(begin: str, days: int, seen: bool) -> None:
    dates = np.datetime64(begin) + np.arange(days)
    panel = parse_panel(["date,y", *(f"{date},{k % 7}" for k, date in enumerate(dates))], "y.csv")
    assert has_seen_its_calendar(panel, [days]) is seen
    assert not has_seen_its_calendar(parse_panel(["t,y", *(f"{t},{t % 7}" for t in range(900))], "y.csv"), [900])
