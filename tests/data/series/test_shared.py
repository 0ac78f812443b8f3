"""One linear autoregression for many series: least squares by hand, and better than each series' own where these are
short."""

from __future__ import annotations

import numpy as np
import pytest

from recur.baselines.forecasts import RIDGE, AutoregressionOptions, fit_autoregression, fit_shared, prefers_logarithms
from recur.errors import OptionError


def many(n: int, length: int, seed: int = 0) -> list[np.ndarray]:
    """Of very different levels and sizes, all with the same dynamics."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n):
        y = np.zeros(length)
        for t in range(4, length):
            y[t] = 0.5 * y[t - 1] + 0.8 * y[t - 4] - 0.35 * y[t - 3] + rng.normal()
        found.append((10 ** rng.uniform(-2, 3) * (y + rng.normal() * 50))[:, None])
    return found


def test_it_is_least_squares_over_normalised_windows() -> None:
    series, lags, k = many(3, 40), 6, 2
    model = fit_shared(series, k, lags=[lags])
    products, targets = np.zeros((lags, lags)), np.zeros((lags, k))
    for (z,) in (y.T for y in series):
        origins = range(10, len(z) - k + 1)  # a quarter of 40
        for o in origins:
            past = z[o - lags : o]
            x = np.r_[1, (past[:-1] - past[-1]) / past.std()]
            products += np.outer(x, x) / np.sqrt(len(origins))
            targets += np.outer(x, (z[o : o + k] - past[-1]) / past.std()) / np.sqrt(len(origins))
    ridge = RIDGE * np.trace(products[1:, 1:]) / lags
    weights = np.linalg.solve(products + ridge * np.eye(lags), targets)
    assert model.weights[0][:-1] == pytest.approx(weights, rel=1e-9)
    z = series[1]
    past = z[19:25, 0]
    expected = past[-1] + past.std() * (np.r_[1, (past[:-1] - past[-1]) / past.std()] @ weights)
    assert model(z, np.array([25]), k)[0, :, 0] == pytest.approx(expected, rel=1e-9)


def test_forecasts_follow_the_level_and_the_size_of_a_series() -> None:
    series = many(5, 60)
    model = fit_shared(series, 3)
    at = np.array([30, 60])
    assert model(1000 * series[0] + 7, at, 3) == pytest.approx(1000 * model(series[0], at, 3) + 7, rel=1e-9)
    both = np.concatenate([series[0], series[1]], axis=1)
    assert model(both, at, 3)[..., 1] == pytest.approx(model(series[1], at, 3)[..., 0])
    logs = fit_shared([np.exp(y / np.abs(y).max()) for y in series], 3, log=True)
    there = np.exp(series[0] / np.abs(series[0]).max())
    assert logs(5 * there, at, 3) == pytest.approx(5 * logs(there, at, 3), rel=1e-9)


def test_many_short_series_tell_together_what_none_tells_alone() -> None:
    series = many(60, 36)
    model = fit_shared([y[:32] for y in series], 4, lags=[8])
    at, shared, own = np.array([32]), [], []
    for y in series:
        unit = y.std()
        shared.append(np.abs(model(y, at, 4)[0] - y[32:]).mean() / unit)
        alone = fit_autoregression(y[:32], 4, AutoregressionOptions(8))
        own.append(np.abs(alone(y, at, 4)[0] - y[32:]).mean() / unit)
    assert np.mean(shared) < 0.85 * np.mean(own)


def test_logarithms_where_they_forecast_better() -> None:
    rng = np.random.default_rng(0)
    # Each grows or falls at a rate of its own: in logarithms by the same as a season before, and by no shared factor.
    growing = []
    for rate in rng.uniform(-0.1, 0.1, size=9):
        growing.append(np.exp(rate * np.arange(80) + np.tile(rng.normal(size=4), 20) + 0.01 * rng.normal(size=80)))
    growing = [y[:, None] for y in growing]
    assert prefers_logarithms(growing, 4, [76] * 9)
    assert not prefers_logarithms([np.log(y) + 19 for y in growing], 4, [76] * 9)
    assert not prefers_logarithms([np.log(y) - 5 for y in growing], 4, [76] * 9)  # not all positive


def test_windows_that_stood_still_and_series_too_short() -> None:
    flat = np.ones((30, 1))
    model = fit_shared([flat, *many(3, 40)], 2)
    assert model(flat, np.array([20]), 2)[0, :, 0].tolist() == [1, 1]
    with pytest.raises(OptionError, match="no series has a window"):
        fit_shared([flat], 2)
    with pytest.raises(OptionError, match="no series has a window"):
        fit_shared([np.arange(3.0)[:, None]], 2)
