"""Plain forecasts of a part, which stand beside a network's: naive, seasonal naive, a linear autoregression."""

from __future__ import annotations

from typing import Any

from recur.errors import OptionError
from recur.series import SeasonalNaive, fill, fit_autoregressions, naive_forecasts
from recur.tasks.forecast.measuring import Part, score
from recur.text.arrays import Floats

LINEAR = "linear autoregression"


def plain_scores(part: Part) -> dict[str, dict[str, Any]]:
    """Scores by name. The autoregression is fitted to what stands before the part, in the form that suits its end."""
    at, k = part.origins(), part.horizon
    filled = [fill(one.values, part.season) for one in part.panel.series]
    found = {"naive": [naive_forecasts(values, here, k) for values, here in zip(filled, at, strict=True)]}
    if part.season > 1:
        repeat = SeasonalNaive(part.season)
        found["seasonal naive"] = [repeat(values, here, k) for values, here in zip(filled, at, strict=True)]
    before = [values[: part.bounds(number)[0]] for number, values in enumerate(filled)]
    if (made := _linear(before, filled, part)) is not None:
        found[LINEAR] = made
    return {name: score(part, (0.5,), [one[..., None] for one in forecasts]) for name, forecasts in found.items()}


def _linear(before: list[Floats], filled: list[Floats], part: Part) -> list[Floats] | None:
    """None where a series is too short to fit one: it is not in the table then."""
    try:
        fitted = fit_autoregressions(before, part.horizon, (part.season,) if part.season > 1 else ())
    except OptionError:
        return None
    found = []
    for one, values, at in zip(fitted, filled, part.origins(), strict=True):
        found.append(naive_forecasts(values, at, part.horizon) if one is None else one(values, at, part.horizon))
    return found
