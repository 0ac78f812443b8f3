"""Scores by their definitions, forecasts to beat on series whose answer is known, rolling origins counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from recur.errors import OptionError, TextError
from recur.series import (
    Scale,
    SeriesTable,
    baselines,
    coverage,
    known_ahead,
    mase_scale,
    mean_scores,
    parse_table,
    pinball,
    roll,
    smape,
)


def table(values: np.ndarray, known: np.ndarray | None = None) -> SeriesTable:
    values = values.reshape(len(values), -1).astype(float)
    names = tuple("abc"[: values.shape[1]])
    return SeriesTable("x.csv", names, (), values, np.zeros((len(values), 0)) if known is None else known, ())


def test_scores_by_hand() -> None:
    y = np.array([[1.0], [4.0], [2.0], [7.0]])
    assert mase_scale(y, 1) == pytest.approx([(3 + 2 + 5) / 3])
    assert mase_scale(y, 2) == pytest.approx([(1 + 3) / 2])
    target, prediction = np.array([2.0, 4.0]), np.array([1.0, 8.0])
    assert smape(target, prediction) == pytest.approx((200 * 1 / 3 + 200 * 4 / 12) / 2)
    assert pinball(target, prediction, 0.9) == pytest.approx((0.9 * 1 + 0.1 * 4) / 2)
    assert coverage(target, np.array([2.0, 5.0]), np.array([3.0, 6.0])) == 0.5
    with pytest.raises(OptionError, match="needs more than 4 values, got 4"):
        mase_scale(y, 4)
    with pytest.raises(OptionError, match="nothing to measure by"):
        mase_scale(np.ones((5, 1)), 1)


def test_rolling_origins_count_every_forecast_of_every_step() -> None:
    series = table(np.array([0.0, 1, 3, 6, 10, 15]))
    result = roll(series, 3, 2, 1, (0.5,), lambda end: np.full((2, 1, 1), series.values[end - 1, 0]))
    assert [w[:, 0].tolist() for w in result.targets] == [[6, 10], [10, 15], [15]]
    scale = (1 + 2) / 2
    errors = [3, 7, 4, 9, 5]
    scores = result.scores()
    assert scores["mase"] == pytest.approx(np.mean(errors) / scale)
    assert scores["mase_by_step"] == pytest.approx([(3 + 4 + 5) / 3 / scale, (7 + 9) / 2 / scale])
    assert mean_scores([result, result])["mase"] == pytest.approx(scores["mase"])


def test_bands_are_scored_by_all_their_quantiles() -> None:
    series = table(np.array([0.0, 1, 3, 6]))
    result = roll(series, 3, 1, 1, (0.1, 0.5, 0.9), lambda end: np.array([[[4.0, 5.0, 7.0]]]))
    scores = result.scores()
    assert scores["pinball"] == pytest.approx((0.1 * 2 + 0.5 * 1 + 0.1 * 1) / 3)
    assert scores["pinball_scaled"] == pytest.approx(scores["pinball"] / 1.5)
    assert scores["coverage"] == 1


def test_baselines() -> None:
    wave = np.tile([1.0, 5.0, 2.0], 12) + np.random.default_rng(0).normal(scale=0.1, size=36)
    found = {name: mean_scores([rolled])["mase"] for name, rolled in baselines(table(wave), 30, 3, 3, 0).items()}
    assert list(found) == ["naive", "seasonal naive", "linear autoregression on 4"]
    assert found["seasonal naive"] < found["naive"] / 5
    short = baselines(table(np.array([1.0, 3, 2, 5, 4])), 4, 1, 1, 3)
    assert list(short) == ["naive"]  # four values fit no autoregression on three


def test_scaling_is_by_the_part_that_is_known_and_comes_back() -> None:
    values = np.array([[1.0, 10], [3, 30], [100, 5]])
    scale = Scale.of(table(values), 2, "none")
    assert scale.forward(values)[:2].mean(0) == pytest.approx([0, 0])
    assert scale.forward(values)[:2].std(0) == pytest.approx([1, 1])
    for transform in ("none", "log"):
        scale = Scale.of(table(values), 2, transform)
        assert scale.back(scale.forward(values)) == pytest.approx(values)
    with pytest.raises(TextError, match="row 2: a is 0, which has no logarithm"):
        Scale.of(table(np.array([1.0, 0, 2])), 2, "log")


def test_the_phase_of_the_season_is_known_ahead() -> None:
    known = known_ahead(table(np.arange(6.0)), 4, 4, more=3)
    assert known.shape == (9, 2)
    assert known[0] == pytest.approx(known[8])
    assert known[1] == pytest.approx([1, 0])


def test_files_that_begin_elsewhere_agree_on_the_phase() -> None:
    months = [f"{1949 + k // 12}-{k % 12 + 1:02},{k}" for k in range(30)]
    early, late = (parse_table(["Date,y", *months[begin:]], "x.csv") for begin in (0, 7))
    assert known_ahead(early, 5, 12)[7:] == pytest.approx(known_ahead(late, 5, 12))
    years = parse_table(["Date,y", "1701,1", "1703,2"], "x.csv")
    assert years.start == 850
