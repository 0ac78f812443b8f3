"""Scores in blocks beside utilsforecast, with gaps, over several series; splits and origins as published."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from utilsforecast import losses

from recur.data.series import ForecastScores, Split, blocks, deviations, histories, mase_scales, origins, owa, windows
from recur.errors import OptionError

QUANTILES = (0.1, 0.5, 0.9)


def made(n: int = 3, k: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training parts (n, 40), what came (n, k) and its quantiles (n, k, 3)."""
    rng = np.random.default_rng(seed)
    train = np.cumsum(rng.normal(size=(n, 40)), axis=1) * np.array([1, 10, 100])[:n, None] + 200
    target = train[:, -1:] + rng.normal(size=(n, k)) * 5
    forecast = np.sort(target[..., None] + rng.normal(size=(n, k, 3)) * 4, axis=-1)
    return train, target, forecast


def test_scores_are_those_of_utilsforecast() -> None:
    train, target, forecast = made()
    n, k = target.shape
    tally = ForecastScores(QUANTILES, k)
    for one in range(n):
        past = train[one][:, None]
        scale, deviation = mase_scales(past, 4), deviations(past)
        tally.add(str(one), target[one][None, :, None], forecast[one][None, :, None], scale, deviation)
    found = tally.scores()
    ids = np.repeat(np.arange(n), k)
    frame = pd.DataFrame({"unique_id": ids, "ds": np.tile(np.arange(40, 40 + k), n), "y": target.ravel()})
    for place, name in enumerate(("low", "m", "high")):
        frame[name] = forecast[..., place].ravel()
    past = pd.DataFrame({"unique_id": np.repeat(np.arange(n), 40), "ds": np.tile(np.arange(40), n), "y": train.ravel()})
    assert found["mase"] == pytest.approx(losses.mase(frame, ["m"], 4, past)["m"].mean(), rel=1e-12)
    assert found["smape"] == pytest.approx(200 * losses.smape(frame, ["m"])["m"].mean(), rel=1e-12)
    spread = train.std(1)
    assert found["mse"] == pytest.approx((losses.mse(frame, ["m"])["m"] / spread**2).mean(), rel=1e-12)
    assert found["mae"] == pytest.approx((losses.mae(frame, ["m"])["m"] / spread).mean(), rel=1e-12)
    models = {"m": ["low", "m", "high"]}
    assert found["pinball"] == pytest.approx(
        losses.mqloss(frame, models, np.array(QUANTILES))["m"].mean(), rel=1e-12
    )  # fmt: skip
    crps = losses.mqloss(frame, models, np.array(QUANTILES))["m"] * 2 / spread
    assert found["crps"] == pytest.approx(crps.mean(), rel=1e-12)
    frame["m-lo-80"], frame["m-hi-80"] = frame["low"], frame["high"]
    assert found["coverage"] == pytest.approx(losses.coverage(frame, ["m"], 80)["m"].mean(), rel=1e-12)
    # One series of all of them: the ratio of sums.
    whole = frame.assign(unique_id=0)
    wql = losses.mqloss(whole, models, np.array(QUANTILES))["m"].iloc[0] * 2 / np.abs(target).mean()
    assert found["wql"] == pytest.approx(wql, rel=1e-12)


def test_blocks_of_origins_and_variables_give_what_one_piece_does() -> None:
    rng = np.random.default_rng(1)
    target, forecast = rng.normal(size=(9, 4, 2)), np.sort(rng.normal(size=(9, 4, 2, 3)), axis=-1)
    target[rng.random(target.shape) < 0.3] = np.nan
    scale, deviation = np.array([0.5, 2.0]), np.array([1.0, 3.0])
    whole, parts = ForecastScores(QUANTILES, 4), ForecastScores(QUANTILES, 4)
    whole.add("a", target, forecast, scale, deviation)
    for begin in (0, 4, 8):
        parts.add("a", target[begin : begin + 4], forecast[begin : begin + 4], scale, deviation)
    found, expected = parts.scores(), whole.scores()
    assert found.pop("mase_by_step") == pytest.approx(expected.pop("mase_by_step"))
    assert found == pytest.approx(expected)
    seen = ~np.isnan(target)
    error = np.abs(target - forecast[..., 1])
    mase = np.mean([(error[..., c] / scale[c])[seen[..., c]].mean() for c in range(2)])
    assert whole.scores()["mase"] == pytest.approx(mase)
    width = np.mean([((forecast[..., c, 2] - forecast[..., c, 0]) / scale[c])[seen[..., c]].mean() for c in range(2)])
    assert whole.scores()["width"] == pytest.approx(width)
    by_step = [np.mean((error / scale)[:, j][seen[:, j]]) for j in range(4)]
    assert whole.scores()["mase_by_step"] == pytest.approx(by_step)


def test_a_series_without_a_scale_is_left_out_of_mase_alone() -> None:
    tally = ForecastScores((0.5,), 1)
    tally.add("flat", np.ones((1, 1, 1)), np.zeros((1, 1, 1)), mase_scales(np.ones((5, 1)), 1), np.ones(1))
    with pytest.raises(OptionError, match="nothing to measure by"):
        tally.scores()
    tally.add("b", np.ones((1, 1, 1)), np.full((1, 1, 1), 3.0), np.array([4.0]), np.ones(1))
    assert tally.scores()["mase"] == 0.5
    assert tally.scores()["mae"] == 1.5
    with pytest.raises(OptionError, match="no forecast was measured"):
        ForecastScores((0.5,), 1).scores()


def test_owa_of_naive_2_is_1() -> None:
    scores = {"smape": 9.0, "mase": 2.7}
    assert owa(scores, scores) == 1
    assert owa({"smape": 4.5, "mase": 2.7}, scores) == 0.75


def test_scales_leave_gaps_out() -> None:
    train = np.array([[1.0, 5], [4, 5], [np.nan, 5], [2, 5], [7, 5]])
    assert mase_scales(train, 1) == pytest.approx([(3 + 5) / 2, np.nan], nan_ok=True)
    assert deviations(train) == pytest.approx([np.std([1, 4, 2, 7]), 1])
    assert np.isnan(mase_scales(train, 5)).all()


def test_splits_and_origins_as_published() -> None:
    split = Split.of_rows((8640, 2880, 2880), 17420)
    assert split == (8640, 11520, 14400)
    assert len(origins(split.valid, split.test, 96)) == 2785
    assert Split.of(100, valid=10, test=20) == (70, 80, 100)
    assert origins(5, 9, 2).tolist() == [5, 6, 7]
    assert origins(5, 9, 2, whole=False).tolist() == [5, 6, 7, 8]
    assert origins(5, 12, 2, stride=3).tolist() == [5, 8]
    assert len(origins(5, 6, 2)) == 0
    with pytest.raises(OptionError, match="has 99 values, and its parts 80 \\+ 10 \\+ 10 = 100"):
        Split.of_rows((80, 10, 10), 99)
    with pytest.raises(OptionError, match="three parts"):
        Split.of_rows((80, 10), 99)


def test_windows_end_where_the_series_does() -> None:
    values = np.arange(5.0)[:, None]
    assert np.array_equal(windows(values, np.array([2, 4]), 2)[..., 0], [[2, 3], [4, np.nan]], equal_nan=True)
    assert histories(values, np.array([2, 5]), 3)[..., 0].tolist() == [[0, 0, 1], [2, 3, 4]]
    assert [part.tolist() for part in blocks(np.arange(5), 1 << 20)] == [[0, 1], [2, 3], [4]]
