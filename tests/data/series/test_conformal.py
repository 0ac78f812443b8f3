"""Bands hold what they say: by their definition, on exchangeable values, on an autoregression, and where it drifts."""

from __future__ import annotations

import numpy as np
import pytest

from recur.data.series import AdaptiveInterval, PredictionIntervals, anomalies, residuals, rolling_intervals
from recur.data.series.evaluation import conformal_quantile
from recur.errors import OptionError

QUANTILES = (0.1, 0.5, 0.9)


def test_the_conformal_quantile_is_an_order_statistic() -> None:
    scores = np.array([3.0, 1.0, 4.0, 2.0, 9.0, 5.0, 6.0, 7.0, 8.0])
    assert conformal_quantile(scores, 0.9) == 9  # ⌈10 · 0.9⌉ = 9
    assert conformal_quantile(scores, 0.75) == 8
    assert conformal_quantile(scores, 0.1) == 1
    assert conformal_quantile(scores, 0.25) == 2
    assert conformal_quantile(scores, 0.91) == 1.5 * 9  # too few to say: beyond all of them
    assert conformal_quantile(scores - 9, 0.05) == 1.5 * -8
    assert conformal_quantile(scores - 9, 0.95) == 0
    gappy = np.stack([scores, np.where(scores > 5, np.nan, scores)], axis=1)
    assert conformal_quantile(gappy, 0.75).tolist() == [8, 5]  # ⌈10 · 0.75⌉ and ⌈6 · 0.75⌉
    assert conformal_quantile(scores, 0.5, 3.0) == 6  # as of three: ⌈4/3 · 0.5 · 9⌉


def test_a_new_exchangeable_value_is_covered_as_often_as_was_asked() -> None:
    """For n = 19 and q = 0.1, 0.9 the probability is exactly 18/20 − 2/20: a mean over many draws, to 4 deviations."""
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(4000):
        drawn = rng.standard_t(3, size=20)
        low, high = conformal_quantile(drawn[:-1], 0.1), conformal_quantile(drawn[:-1], 0.9)
        hits.append(low <= drawn[-1] <= high)
    assert abs(np.mean(hits) - 0.8) < 4 * np.sqrt(0.8 * 0.2 / 4000)


def bands_of(noise: np.ndarray, quantiles: tuple[float, ...] = QUANTILES, width: float = 0.01) -> PredictionIntervals:
    """Where a model's own bands are far too narrow."""
    forecast = np.zeros((*noise.shape, len(quantiles))) + width * (np.array(quantiles) - 0.5)
    return PredictionIntervals.fit(noise, forecast, quantiles)


@pytest.mark.parametrize(("N", "most"), [(12, 0.9), (60, 0.86), (400, 0.83)])
def test_coverage_holds_for_every_step_with_few_and_many_forecasts(N: int, most: float) -> None:
    """Errors grow with the steps and differ between series. Few forecasts are taken to say less than these do, whose
    steps are independent."""
    rng = np.random.default_rng(N)
    size = np.sqrt(np.arange(1, 7))[:, None] * np.array([1.0, 50.0])
    covered = []
    for _ in range(60):
        bands = bands_of(rng.normal(size=(N, 6, 2)) * size)
        new = rng.normal(size=(200, 6, 2)) * size
        made = bands.apply(np.zeros((200, 6, 2, 3)))
        covered.append(((made[..., 0] <= new) & (new <= made[..., 2])).mean(0))
    mean = np.mean(covered, axis=0)
    assert mean.min() > 0.79
    assert mean.max() < most


def test_coverage_holds_on_an_autoregression() -> None:
    """AR(1) forecast by its own coefficient: the band of step j has the deviation √Σ φ^2i, which it must find."""
    rng, phi, k = np.random.default_rng(0), 0.8, 8
    y = np.zeros(20_000)
    for t in range(1, len(y)):
        y[t] = phi * y[t - 1] + rng.normal()
    rows = np.lib.stride_tricks.sliding_window_view(y, k + 1)
    forecast = (rows[:, :1] * phi ** np.arange(1, k + 1))[..., None, None] + np.zeros((1, 1, 1, 3))
    target = rows[:, 1:, None]
    bands = PredictionIntervals.fit(target[:10_000], forecast[:10_000], QUANTILES)
    expected = 1.2816 * np.sqrt(np.cumsum(phi ** (2 * np.arange(k))))
    assert bands.offsets[:, 0, 2] == pytest.approx(expected, rel=0.06)
    made = bands.apply(forecast[10_000:])
    inside = ((made[..., 0] <= target[10_000:]) & (target[10_000:] <= made[..., 2])).mean((0, 2))
    assert np.abs(inside - 0.8).max() < 0.03
    assert (made[..., 1] == forecast[10_000:, ..., 1]).all()


def test_a_spread_carries_bands_to_another_level() -> None:
    rng = np.random.default_rng(0)
    level = np.linspace(1, 3, 300)[:, None, None]
    target = level * (10 + rng.normal(size=(300, 1, 1)))
    forecast = np.repeat(10 * level[..., None], 3, axis=-1)
    bands = PredictionIntervals.fit(target[:200], forecast[:200], QUANTILES, level[:200])
    made = bands.apply(forecast[200:], level[200:])
    assert ((made[..., 0] <= target[200:]) & (target[200:] <= made[..., 2])).mean() == pytest.approx(0.8, abs=0.07)
    assert made[-1, 0, 0, 2] - made[-1, 0, 0, 0] == pytest.approx(3 * 2 * 1.28, rel=0.2)


def test_quantiles_stay_in_order_and_gaps_are_left_out() -> None:
    rng = np.random.default_rng(0)
    target = rng.normal(size=(30, 3, 2))
    target[rng.random(target.shape) < 0.2] = np.nan
    quantiles = (0.05, 0.25, 0.5, 0.75, 0.95)
    forecast = np.sort(3 * rng.normal(size=(30, 3, 2, 5)), axis=-1)
    bands = PredictionIntervals.fit(target, forecast, quantiles)
    assert np.isfinite(bands.offsets).all()
    made = bands.apply(forecast)
    assert (np.diff(made, axis=-1) >= 0).all()
    assert PredictionIntervals(quantiles, bands.offsets).apply(forecast[:, :2]) == pytest.approx(made[:, :2])
    few = PredictionIntervals.fit(target[:2], forecast[:2], quantiles)
    assert np.isfinite(few.offsets).all()
    with pytest.raises(OptionError, match="there are none"):
        PredictionIntervals.fit(np.full((2, 1, 1), np.nan), np.zeros((2, 1, 1, 3)), QUANTILES)
    with pytest.raises(OptionError, match="prediction intervals need values"):
        PredictionIntervals.fit(target, forecast, QUANTILES)


def test_rolling_bands_use_what_came_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    target = rng.normal(size=(60, 3, 1)) * np.linspace(1, 5, 60)[:, None, None]
    forecast = np.zeros((60, 3, 1, 3))
    found = rolling_intervals(target, forecast, QUANTILES, 40)
    for origin in (40, 59):
        known = target[:origin].copy()
        known[origin - 1, 1:] = known[origin - 2, 2:] = np.nan  # still to come
        expected = PredictionIntervals.fit(known, forecast[:origin], QUANTILES).apply(forecast[origin])
        assert (found[origin - 40] == expected).all()
    changed = target.copy()
    changed[50:] = 1e6
    assert (rolling_intervals(changed, forecast, QUANTILES, 40)[:10] == found[:10]).all()
    apart = rolling_intervals(target, forecast, QUANTILES, 40, stride=3)  # all steps of an origin have come at the next
    assert (apart[0] == PredictionIntervals.fit(target[:40], forecast[:40], QUANTILES).apply(forecast[40])).all()


def test_rolling_bands_of_forecasts_in_any_order() -> None:
    """Of two series whose forecasts stand behind each other: when they were made is what counts."""
    rng = np.random.default_rng(1)
    target = rng.normal(size=(24, 2, 1)) * np.linspace(1, 5, 24)[:, None, None]
    forecast = rng.normal(size=(24, 2, 1, 1)) + np.array([-0.1, 0.0, 0.1])
    when = np.concatenate([np.arange(8), np.arange(4, 12), np.arange(8, 12), np.arange(12, 16)])  # the last 8 are asked
    found = rolling_intervals(target, forecast, QUANTILES, 16, when=when)
    for k in range(16, 24):
        known = [i for i in range(24) if when[i] < when[k]]
        came = target[known].copy()
        came[[when[i] + 1 >= when[k] for i in known], 1] = np.nan
        assert (found[k - 16] == PredictionIntervals.fit(came, forecast[known], QUANTILES).apply(forecast[k])).all()


def test_forecasts_whose_end_is_still_to_come_count_as_those_that_are_whole() -> None:
    """9 whole ones of three steps, and two of which less has come: at 0.9 there is no score of so few, and the band is
    half as much again as the outermost."""
    rng = np.random.default_rng(2)
    target = rng.normal(size=(11, 3, 1))
    target[9, 2], target[10, 1:] = np.nan, np.nan
    forecast = np.zeros((11, 3, 1, 3))
    found = PredictionIntervals.fit(target, forecast, (0.05, 0.5, 0.95)).offsets
    ratio = found[:, 0, 2] / found[:, 0, 0]
    assert np.allclose(ratio, ratio[0])  # one score for all steps, in units of each
    scores = target[..., 0] / (found[:, 0, 2] / found[0, 0, 2])  # in those of the first
    assert found[0, 0, 2] == pytest.approx(1.5 * np.nanmax(scores))


def test_rolling_bands_of_very_many_are_fitted_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.data.series.evaluation.MAX_SORTED_SCORES", 60 * 3 * 3 * 20 // 4)
    target = np.random.default_rng(0).normal(size=(60, 3, 1))
    found = rolling_intervals(target, np.zeros((60, 3, 1, 3)), QUANTILES, 40)
    assert (found.reshape(5, 4, -1) == found.reshape(5, 4, -1)[:, :1]).all()  # every four
    assert len(np.unique(found[::4, 0, 0, 2])) > 1


def test_an_adaptive_band_holds_where_the_series_changes() -> None:
    """Errors ten times as large as those it was fitted to: a fixed band would cover next to nothing."""
    rng = np.random.default_rng(0)
    band = AdaptiveInterval(np.abs(rng.normal(size=200)), 0.8)
    fixed = band.offset
    errors = np.abs(10 * rng.normal(size=3000))
    hits = []
    for error in errors:
        hits.append(error <= band.offset)
        band.see(float(error))
    assert np.mean(errors <= fixed) < 0.2
    assert np.mean(hits) == pytest.approx(0.8, abs=0.01)


def test_residuals_are_z_scores_of_a_normal_forecast() -> None:
    z = 1.2815515655446004
    forecast = np.array([[10 - 2 * z, 10, 10 + 4 * z]])
    assert residuals(np.array([18.0]), forecast, QUANTILES) == pytest.approx([2.0])
    assert residuals(np.array([6.0]), forecast, QUANTILES) == pytest.approx([-2.0])
    assert residuals(np.array([6.0]), forecast, QUANTILES, least=8.0) == pytest.approx([-0.5])
    one_sided = residuals(np.array([6.0]), forecast[:, 1:], (0.5, 0.9))
    assert one_sided == pytest.approx([-1.0])
    with pytest.raises(OptionError, match="one quantile has none"):
        residuals(np.array([6.0]), forecast[:, 1:2], (0.5,))


def test_p_values_are_shares_and_uniform_where_nothing_is_wrong() -> None:
    before = np.array([0.5, -1.0, 2.0, np.nan])
    found = anomalies(np.array([2.0, -1.0, 0.5, 0.1, np.nan]), before).p_value
    assert found == pytest.approx([0.5, 0.75, 1.0, 1.0, np.nan], nan_ok=True)
    larger = anomalies(np.array([2.0, 3.0, -4.0]), before).p_value
    assert (np.diff(larger) < 0).all()
    rng = np.random.default_rng(0)
    p = anomalies(rng.normal(size=20_000), rng.normal(size=20_000)).p_value
    for level in (0.01, 0.1, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, rel=0.15)
    with pytest.raises(OptionError, match="there are none"):
        anomalies(np.ones(1), np.array([np.nan]))
