"""What is learned from, measured on and tested on: no test value is learned from, and parts that are too short for what
is asked are said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recur
from recur.errors import OptionError
from recur.tasks import make_options, task_class
from recur.tasks.forecast.task import ForecastTask

FEW: dict[str, Any] = {"hidden_size": 4, "steps": 2, "threads": 1}


def settled(**fields: Any) -> ForecastTask:
    cls = task_class("forecast")
    task = cls(cls.settle(make_options("forecast", fields)))
    assert isinstance(task, ForecastTask)
    return task


def wide(path: Path, values: Any, begin: int = 0) -> str:
    path.write_text("t,y\n" + "".join(f"{begin + t},{y}\n" for t, y in enumerate(values)))
    return str(path)


def noise(length: int) -> Any:
    return np.round(np.random.default_rng(0).normal(20, 3, length), 3)


def test_of_test_files_as_many_values_of_each_series_are_tested_on(tmp_path: Path) -> None:
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    header = ",".join(f"V{k}" for k in range(1, 43)) + "\n"
    train.write_text(header + "".join(f"{k},{','.join(map(str, noise(40 + n)))}\n" for n, k in enumerate("AB")))
    test.write_text(header + "B,1000,1001,1002,1003,1004,1005,1006\nA,1000,1001,1002\n")
    data = settled(texts=str(train), test=str(test), layout="rows", horizon=3).read()
    assert [split.valid for split in data.splits] == [40, 41]
    assert [split.test for split in data.splits] == [43, 44]
    for one, split in zip(data.panel.series, data.splits, strict=True):
        assert one.values[: split.valid].max() < 1000 == one.values[split.valid, 0]
        assert len(one) == split.test


def test_a_wide_file_is_continued_by_one_of_another_name(tmp_path: Path) -> None:
    train, test = wide(tmp_path / "train.csv", noise(60)), wide(tmp_path / "test.csv", noise(5), 60)
    data = settled(texts=train, test=test, season=1).read()
    assert data.splits[0][1:] == (60, 65)
    assert data.panel.series[0].values[60:, 0] == pytest.approx(noise(5))


def test_parts_without_a_whole_horizon_are_refused(tmp_path: Path) -> None:
    path = wide(tmp_path / "y.csv", noise(100))
    for name in ("valid", "test"):
        with pytest.raises(OptionError, match=f"^--{name}-size 5 holds no whole --horizon 12: raise it, or lower"):
            settled(texts=path, horizon=12, season=1, **{f"{name}_size": 5}).read()


def test_a_short_series_has_windows_where_it_has_one_horizon_to_learn_from(tmp_path: Path) -> None:
    task = settled(texts=wide(tmp_path / "y.csv", noise(36)), season=1, horizon=10, holdout=10)
    windows = next(task.batches(task.read()).batches())
    assert 0 <= int(windows.ends.min()) <= int(windows.ends.max()) == 16 - 10 - 1


def test_beside_a_naive_forecast_without_an_error_there_is_no_owa(tmp_path: Path) -> None:
    values = noise(60)
    values[-15:] = 7.0
    path = wide(tmp_path / "y.csv", values)
    found = recur.fit(path, task="forecast", season=1, horizon=3, test_size=12, **FEW).evaluate()
    assert "owa" not in found
    assert next(row for row in found["beside"] if row["model"] == "naive")["mase"] == 0


def test_errors_are_in_deviations_of_what_stands_before_in_a_file_too_short_to_learn_from(tmp_path: Path) -> None:
    values = noise(60)
    model = recur.fit(wide(tmp_path / "y.csv", values), task="forecast", season=1, horizon=3, holdout=12, **FEW)
    short = values[:20].copy()
    short[8:] += 1000 * np.arange(12)  # 8 before the test part, and fewer than none to learn from
    found = model.evaluate([wide(tmp_path / "short.csv", short)])
    at = 8 + np.arange(10)
    error = short[at[:, None] + np.arange(3)] - short[at - 1][:, None]
    naive = next(row for row in found["beside"] if row["model"] == "naive")
    assert naive["mae"] == pytest.approx(float(np.abs(error).mean() / short[:8].std()))


def test_anomalies_need_no_moved_bands_but_bands(tmp_path: Path) -> None:
    values = noise(80)
    path = wide(tmp_path / "y.csv", values)
    lines = Path(path).read_text().splitlines()
    fields: dict[str, Any] = {"task": "forecast", "season": 1, "horizon": 3, "holdout": 20, **FEW}
    model = recur.fit(path, bands="model", **fields)
    assert not model.model.offsets.any()
    found = [row["p_value"] for row in model.predictions(lines, anomalies=True)]
    assert np.mean(np.array(found) < 0.1) < 0.3
    bare = recur.fit(path, quantiles=[0.5], **fields)
    with pytest.raises(OptionError, match="has not kept which errors are usual; train it again, with several"):
        list(bare.predictions(lines, anomalies=True))


def test_the_season_is_not_that_of_the_test_part(tmp_path: Path) -> None:
    wave = np.tile([1, 9, 4, 2, 6, 3, 7], 20)[:120] + noise(120) / 20
    assert settled(texts=wide(tmp_path / "a.csv", wave)).season == 7
    late = np.concatenate([noise(40), 50 * wave[:80]])
    sizes = {"train_size": 30, "valid_size": 10, "test_size": 80}
    assert settled(texts=wide(tmp_path / "b.csv", late), horizon=2, **sizes).season == 1
    assert settled(texts=wide(tmp_path / "b.csv", late), horizon=2, holdout=10).season == 7
