"""Plain forecasts of a part, to stand beside a network's: naive, seasonal naive, naive 2, linear autoregression, and of
many series one that they share."""

from __future__ import annotations

from typing import Any

from recur.baselines.forecasts import (
    BaselineForecast,
    Naive2,
    SeasonalNaive,
    SharedAutoregression,
    choose_autoregression,
    fit_shared,
    naive_forecasts,
    prefers_logarithms,
)
from recur.data.series import fill
from recur.data.text.stream import Floats
from recur.errors import OptionError
from recur.tasks.forecast.linear import fit_in_form
from recur.tasks.forecast.measuring import Part, score
from recur.tasks.forecast.rules import MANY

LINEAR = "linear autoregression"


def plain_scores(part: Part) -> dict[str, dict[str, Any]]:
    """Scores by name. What is fitted is fitted to what stands before the part."""
    filled = [fill(one.values, part.season) for one in part.panel.series]
    before = [values[: part.bounds(number)[0]] for number, values in enumerate(filled)]
    found: dict[str, list[BaselineForecast]] = {"naive": [naive_forecasts] * len(filled)}
    if part.season > 1:
        found["seasonal naive"] = [SeasonalNaive(part.season)] * len(filled)
        found["naive 2"] = [Naive2.fit(values, part.season) for values in before]
    if linear := _linear(before, filled, part):
        found[LINEAR] = linear
    if len(filled) >= MANY and (shared := _shared(before, filled, part)):
        found[shared.name] = [shared] * len(filled)
    scores = {}
    for name, each in found.items():
        made = (one(values, at, part.horizon) for one, values, at in zip(each, filled, part.origins(), strict=True))
        scores[name] = score(part, (0.5,), (forecasts[..., None] for forecasts in made))
    return scores


def _linear(before: list[Floats], filled: list[Floats], part: Part) -> list[BaselineForecast]:
    """In the form that, fitted to the training parts, forecasts the validation parts best; a series that is too short
    for it has the naive forecast. None where all are."""
    seen, learned = _learned(filled, part)
    try:
        form = choose_autoregression(seen, part.horizon, (part.season,) if part.season > 1 else (), learned)
    except OptionError:
        return []
    return [fit_in_form(values, part.horizon, form) or naive_forecasts for values in before]


def _shared(before: list[Floats], filled: list[Floats], part: Part) -> SharedAutoregression | None:
    """On logarithms, if that forecasts the validation parts better; None where all are too short for a window."""
    seen, learned = _learned(filled, part)
    try:
        return fit_shared(before, part.horizon, log=prefers_logarithms(seen, part.horizon, learned))
    except OptionError:
        return None


def _learned(filled: list[Floats], part: Part) -> tuple[list[Floats], list[int]]:
    """All series without their test parts, and how many values of each are learned from."""
    seen = [values[: split.valid] for values, split in zip(filled, part.splits, strict=True)]
    return seen, [max(split.train, 1) for split in part.splits]
