"""The figures of a run's weights, and of the plain models that it has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recur.tasks.contract import Baseline
from recur.tasks.metrics import best_of, better, metric_of
from recur.tasks.predictor import Predictor
from recur.utils.types import JsonObject, Metrics

LEVEL = 0.03
"""A figure that is worse than a plain model's by less is as good as it."""


def plain_models(predictor: Predictor[Any]) -> list[Baseline]:
    """What the run measured before its first step."""
    return [Baseline(str(one["name"]), float(one["value"]), one["metrics"]) for one in predictor.run.baselines() or ()]


def best_metrics(predictor: Predictor[Any], entries: list[JsonObject]) -> Metrics:
    """The figures of the weights that were kept: those of the best measurement, or of the last one."""
    curve = predictor.task.curve
    measured = [entry for entry in entries if isinstance(entry.get(curve), int | float)]
    if not measured:
        return {}
    if getattr(predictor.task.options, "keep", "best") == "last":
        kept = measured[-1]
    else:
        best = best_of(curve, [float(entry[curve]) for entry in measured])
        as_good = [entry for entry in measured if float(entry[curve]) == best]
        kept = min(as_good, key=lambda entry: float(entry.get("valid_loss", 0.0)))
    return {name: float(v) for name, v in kept.items() if name.startswith("valid_") and isinstance(v, int | float)}


def clearly_behind(curve: str, value: float, plain: Sequence[Baseline]) -> bool:
    """Whether a plain model is better by more than LEVEL of the figure."""
    best = best_of(curve, [one.value for one in plain])
    allowed = best * (1 - LEVEL) if metric_of(curve).higher else best * (1 + LEVEL)
    return better(curve, allowed, value)
