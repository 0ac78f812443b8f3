"""Seasons: those that are there, on made and on real series, and none where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recur.data.series import Frequency, find_seasons, panel_seasons, parse_panel, read_panel
from recur.data.series.dates import HOUR

DATA = Path(__file__).parents[4] / "shared" / "data"


def autoregressive(n: int, phi: float, rng: np.random.Generator) -> np.ndarray:
    noise = rng.normal(size=n)
    for t in range(1, n):
        noise[t] += phi * noise[t - 1]
    return noise[:, None]


def test_noise_has_none() -> None:
    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=(n, 1)) for n in (12, 30, 100, 1000) for _ in range(20)]
    walks = [series.cumsum(0) for series in drawn]
    others = [autoregressive(n, phi, rng) for n in (60, 300) for phi in (0.5, 0.9, -0.5) for _ in range(20)]
    found = [find_seasons(series) for series in (*drawn, *walks, *others)]
    assert sum(map(bool, found)) <= 0.01 * len(found)
    assert (
        find_seasons(np.ones((50, 1))) == find_seasons(np.arange(50.0)[:, None]) == find_seasons(np.ones((2, 1))) == ()
    )


@pytest.mark.parametrize("season", [4, 7, 12, 52])
def test_a_season_is_found_without_dates_through_noise_and_trend(season: int) -> None:
    rng = np.random.default_rng(season)
    for _ in range(5):
        pattern = np.tile(rng.normal(size=season), 25)
        series = pattern + 0.3 * rng.normal(size=len(pattern)) + 0.1 * np.arange(len(pattern))
        assert find_seasons(series[:, None]) == (season,)


def test_of_the_seasons_of_dates_those_that_add_something() -> None:
    rng, t = np.random.default_rng(0), np.arange(24 * 7 * 6)
    daily = rng.normal(size=24)[t % 24]
    weekly = rng.normal(size=168)[t % 168]
    noise, hours = 0.3 * rng.normal(size=len(t)), Frequency("microseconds", HOUR)
    assert find_seasons((daily + noise)[:, None], hours) == (24,)
    assert find_seasons((daily + weekly + noise)[:, None], hours) == (24, 168)
    assert find_seasons(noise[:, None], hours) == ()
    assert find_seasons((daily + noise)[:60, None], hours) == ()  # of two days and a half


def test_series_vote() -> None:
    rng = np.random.default_rng(0)
    wave = np.tile([0.0, 5.0, 1.0, 2.0], 12)
    rows = [wave + 0.1 * rng.normal(size=48), wave + 0.1 * rng.normal(size=48), rng.normal(size=48)]
    header = ",".join(f"V{k}" for k in range(1, 50))

    def panel(*chosen: int) -> object:
        text = [header] + [f"s{n}," + ",".join(map(str, rows[k])) for n, k in enumerate(chosen)]
        return panel_seasons(parse_panel(text, "x.csv"))

    assert panel(0, 1, 2) == (4,)
    assert panel(0, 2) == ()


@pytest.mark.parametrize(
    ("name", "seasons"),
    [
        ("series/airline.csv", [12]),
        ("series/sunspots.csv", [10]),
        ("ett/ETTh2.csv", [24, 168]),
        ("m4/weekly-train.csv", []),  # of which M4 says so too
    ],
)
def test_real_series(name: str, seasons: list[int]) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not here")
    assert list(panel_seasons(read_panel([str(DATA / name)]))) == seasons
