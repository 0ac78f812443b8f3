"""The plain forecasts that stand beside a network's: which there are, and that none of them sees what it forecasts."""

from __future__ import annotations

import numpy as np

from recur.data.series import Panel, Series, Split
from recur.tasks.forecast.evaluation import EvaluationPart, baseline_scores


def part(count: int, name: str = "valid", length: int = 60, season: int = 4, last: float = 0.0) -> EvaluationPart:
    rng, series = np.random.default_rng(0), []
    for k in range(count):
        values = 50 + 10 * k + np.tile(rng.normal(size=4), 30)[:length] * 5 + rng.normal(size=length).cumsum()
        values[-4:] += last
        empty = np.zeros((length, 0))
        series.append(Series(str(k), values[:, None], empty, empty, np.zeros(0)))
    splits = tuple(Split.of(length, valid=4, test=4) for _ in series)
    return EvaluationPart(Panel("x", tuple(series), ("y",)), splits, name, 4, season)


def test_many_series_stand_beside_one_autoregression_that_they_share() -> None:
    few = ["naive", "seasonal naive", "naive 2", "linear autoregression"]
    assert list(baseline_scores(part(3))) == few
    found = baseline_scores(part(25))
    assert list(found) == [*few, "shared linear autoregression"]
    assert found["shared linear autoregression"]["mase"] < 0.5 * found["naive"]["mase"]
    short = baseline_scores(part(25, length=11, season=1))
    assert "shared linear autoregression" not in short


def test_no_plain_forecast_of_the_validation_part_sees_the_test_part() -> None:
    here, there = baseline_scores(part(25)), baseline_scores(part(25, last=1000.0))
    assert here == there
    assert baseline_scores(part(25, "test")) != baseline_scores(part(25, "test", last=1000.0))
