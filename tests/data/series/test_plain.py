"""Plain forecasts of all origins at once: by hand, beside statsmodels, and on series whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.tsa.ar_model import AutoReg
from statsmodels.tsa.seasonal import seasonal_decompose
from statsmodels.tsa.stattools import acf

from recur.baselines.forecasts import (
    AutoregressionOptions,
    Naive2,
    SeasonalNaive,
    candidate_lags,
    choose_autoregression,
    fit_autoregression,
    fit_autoregressions,
    is_seasonal,
    naive_forecasts,
    seasonal_factors,
)
from recur.baselines.forecasts import _moments as moments
from recur.errors import OptionError


def autoregressive(n: int, seed: int = 0, level: float = 50.0) -> np.ndarray:
    """(n, 2)"""
    noise = np.random.default_rng(seed).normal(size=(n, 2))
    y = np.full((n, 2), level)
    for t in range(3, n):
        y[t] = 0.3 * level + 0.6 * y[t - 1] - 0.3 * y[t - 2] + 0.4 * y[t - 3] + noise[t]
    return y


def test_naive_forecasts_by_hand() -> None:
    past = np.arange(12.0).reshape(6, 2)
    at = np.array([4, 6])
    assert naive_forecasts(past, at, 2)[..., 0].tolist() == [[6, 6], [10, 10]]
    assert SeasonalNaive(3)(past, at, 5)[..., 0].tolist() == [[2, 4, 6, 2, 4], [6, 8, 10, 6, 8]]
    with pytest.raises(OptionError, match="at least 5 values"):
        SeasonalNaive(5)(past, at, 1)


@pytest.mark.parametrize("lags", [1, 3, 7])
def test_an_iterated_autoregression_is_that_of_statsmodels(lags: int) -> None:
    y = autoregressive(300)
    ours = fit_autoregression(y[:250], 12, AutoregressionOptions(lags))(y, np.array([250, 283]), 12)
    for column in range(2):
        fitted = AutoReg(y[:250, column], lags, trend="c").fit()
        assert ours[0, :, column] == pytest.approx(fitted.predict(250, 261), rel=1e-10)
        there = AutoReg(y[:283, column], lags, trend="c")
        assert ours[1, :, column] == pytest.approx(there.predict(fitted.params, 283, 294), rel=1e-10)


@pytest.mark.parametrize("relative", [False, True])
def test_a_direct_one_is_least_squares_for_each_step(relative: bool) -> None:
    y, lags, k = autoregressive(120), 4, 3
    ours = fit_autoregression(y[:100], k, AutoregressionOptions(lags, direct=True, relative=relative))(
        y, np.array([107]), k
    )
    for column in range(2):
        series = y[:100, column]
        for j in range(k):
            rows = np.stack([series[t - lags : t] for t in range(lags, 100 - k + 1)])
            target = series[lags + j : 100 - k + 1 + j]
            base, last = (rows[:, -1:], y[106, column]) if relative else (np.zeros((len(rows), 1)), 0.0)
            inputs = rows - base
            inputs = inputs[:, :-1] if relative else inputs  # the last value less itself is 0
            design = np.column_stack([np.ones(len(rows)), inputs])
            found = np.linalg.lstsq(design, target - base[:, 0], rcond=None)[0]
            now = y[103:107, column] - last
            now = now[:-1] if relative else now
            assert ours[0, j, column] == pytest.approx(last + found[0] + now @ found[1:], rel=1e-9)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(("lags", "k"), [(1, 1), (5, 1), (4, 7)])
def test_sums_of_products_are_those_of_all_windows(lags: int, k: int, relative: bool) -> None:
    series = autoregressive(60)[:, 0]
    rows = np.lib.stride_tricks.sliding_window_view(series - series.mean(), lags + k)
    rows = rows - rows[:, lags - 1 : lags] if relative else rows
    design = np.column_stack([np.ones(len(rows)), rows[:, :lags]])
    found = moments(series, lags, k, relative)
    assert found.inputs == pytest.approx(design.T @ design, abs=1e-10)
    assert found.targets == pytest.approx(design.T @ rows[:, lags:], abs=1e-10)
    fewer = found.of(lags - 1) if lags > 1 else found
    assert fewer.inputs[-1, -1] == found.inputs[-1, -1]
    assert len(fewer.targets) == max(lags, 2)


def test_ridge_is_that_of_the_normal_equations() -> None:
    y, lags = autoregressive(80, level=0.0)[:, :1], 3
    found = fit_autoregression(y, 1, AutoregressionOptions(lags, ridge=0.1)).weights[0, :, 0]
    rows = np.lib.stride_tricks.sliding_window_view(y[:, 0], lags + 1)
    x, target = rows[:, :lags] - rows[:, :lags].mean(0), rows[:, lags] - rows[:, lags].mean()
    x = x / (spread := np.sqrt((x**2).sum(0)))
    expected = np.linalg.solve(x.T @ x + 0.1 * np.eye(lags), x.T @ target) / spread
    assert found[1:] == pytest.approx(expected, rel=1e-10)


def test_a_recurrence_that_is_exact_is_found() -> None:
    y = [1.0, 2.0]
    for _ in range(60):
        y.append(0.3 + 0.9 * y[-1] - 0.5 * y[-2])
    values = np.column_stack([y, 2 * np.array(y) + 1e6])
    for relative in (False, True):
        found = fit_autoregression(values[:40], 10, AutoregressionOptions(2 + relative, relative=relative))(
            values, np.array([45]), 10
        )
        assert found[0] == pytest.approx(values[45:55], rel=1e-9), relative
    with pytest.raises(OptionError, match="needs 42 to fit, got 40"):
        fit_autoregression(values[:40], 1, AutoregressionOptions(20))
    with pytest.raises(OptionError, match="is for 2 steps, not 3"):
        fit_autoregression(values, 2, AutoregressionOptions(2))(values, np.array([45]), 3)


def test_rounding_is_no_input() -> None:
    """A trend with a season that repeats exactly: values a season apart differ by a constant, up to rounding."""
    values = (np.tile([1.0, 4.0, 2.0, 8.0], 40) + 0.5 * np.arange(160))[:, None]
    fitted = fit_autoregression(values[:128] / 23, 4, AutoregressionOptions(17, direct=True, relative=True))
    assert np.abs(fitted.weights).max() == pytest.approx(
        1, rel=1e-9
    )  # the season's value, and nothing that cancels out
    assert fitted(values / 23, np.array([140]), 4)[0] == pytest.approx(values[140:144] / 23, rel=1e-10)


def test_a_constant_series_stays_what_it_is() -> None:
    values = np.full((60, 1), 7.0)
    for direct in (False, True):
        for relative in (False, True):
            form = AutoregressionOptions(3, direct, relative)
            assert fit_autoregression(values, 4, form)(values, np.array([60]), 4) == pytest.approx(7.0)


def test_the_form_is_chosen_by_what_it_forecasts() -> None:
    season = np.tile(np.random.default_rng(1).normal(size=12), 30)[:, None]
    noisy = season + 0.1 * np.random.default_rng(2).normal(size=season.shape)
    assert choose_autoregression([noisy], 12, (12,)).lags >= 13
    shifted = np.where(np.arange(360)[:, None] < 300, noisy, noisy + 20)  # the level of what follows is another one
    assert choose_autoregression([shifted], 12, (12,), [300]).relative
    assert candidate_lags((24, 168)) == (1, 2, 4, 8, 25, 49, 97, 169, 337)
    assert candidate_lags(()) == (1, 2, 4, 8, 16, 32)


def test_several_series_share_the_form_and_the_short_ones_take_fewer_lags() -> None:
    wave = np.tile(np.random.default_rng(1).normal(size=12), 30)[:200, None] + 0.01 * autoregressive(200)[:, :1]
    long, short, tiny = fit_autoregressions([wave, wave[:24], wave[:3]], 3, (12,))
    assert long is not None
    assert short is not None
    assert long.form.lags >= 13 > short.form.lags > 0
    assert long.form._replace(lags=0) == short.form._replace(lags=0)
    assert tiny is None
    with pytest.raises(OptionError, match="3 values are too few"):
        fit_autoregressions([wave[:3]], 3, (12,))


@pytest.mark.parametrize("season", [4, 7, 12])
def test_seasonal_factors_are_those_of_statsmodels(season: int) -> None:
    rng = np.random.default_rng(season)
    series = np.linspace(50, 90, 10 * season + 3) * np.tile(1 + 0.3 * rng.random(season), 11)[: 10 * season + 3]
    series = series * (1 + 0.01 * rng.normal(size=len(series)))
    expected = seasonal_decompose(series, model="multiplicative", period=season).seasonal[:season]
    assert seasonal_factors(series, season) == pytest.approx(expected, rel=1e-12)
    assert is_seasonal(series, season)


def test_the_test_of_a_season_is_m4s() -> None:
    """By statsmodels' autocorrelations, in the words of the organisers' code."""
    rng = np.random.default_rng(0)
    answers = set()
    for k in range(60):
        series = 10 + np.tile(rng.normal(size=6), 9) * (k / 60) + rng.normal(size=54)
        r = acf(series, nlags=6, fft=False)[1:]
        limit = 1.645 / np.sqrt(54) * np.sqrt(np.cumsum(np.r_[1, 2 * r**2]))
        expected = bool(abs(r[5]) > limit[5])
        assert is_seasonal(series, 6) == expected
        answers.add(expected)
    assert answers == {True, False}
    assert not is_seasonal(np.arange(1.0, 18.0), 6)
    assert not is_seasonal(np.ones(30), 6)
    assert not is_seasonal(np.tile([0.0, 1.0], 20), 2)


def test_naive_2_puts_the_season_back() -> None:
    season = np.array([0.5, 1.5, 1.0])
    values = np.column_stack([20 * np.tile(season, 12), np.random.default_rng(0).random(36) + 5])
    found = Naive2.fit(values[:30], 3)(values, np.array([30, 31]), 4)
    assert found[..., 0] == pytest.approx(np.array([[10, 30, 20, 10], [30, 20, 10, 30]]))
    assert found[..., 1] == pytest.approx(np.repeat(values[[29, 30], 1][:, None], 4, axis=1))
    assert Naive2.fit(values, 1)(values, np.array([30]), 2)[0] == pytest.approx(np.stack([values[29]] * 2))
