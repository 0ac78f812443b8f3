"""From a loaded run to its portable form: by task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from recur.errors import OptionError, listed
from recur.export import forecasting, numbers, reading, writing
from recur.export.graphs import Portable
from recur.tasks.common.predictor import Predictor

FORMS: dict[str, Callable[..., Portable]] = {
    "language": writing.language,
    "conditional": writing.writer,
    "seq2seq": writing.writer,
    "classify": reading.classifier,
    "tag": reading.tagger,
    "forecast": forecasting.forecaster,
    "adding": numbers.adder,
    "copy": numbers.copier,
}

NONE = {
    "grid": "the size of an image decides how many steps a grid takes, and its form with them",
    "tree": "every sentence has a tree of its own, and the network the form of that tree",
}
"""Tasks whose models have no graph of one form."""


def portable(predictor: Predictor[Any], **options: Any) -> Portable:
    """The graphs and tables of a trained model, whatever they are exported to."""
    task = predictor.task.name
    if len(predictor.runs) > 1:
        raise OptionError(f"{predictor.name} are {len(predictor.runs)} runs: export them one by one")
    if task not in FORMS:
        why = NONE.get(task, "its model has no graph yet")
        raise OptionError(f"runs of the task {task} are not exported: {why}; those of {listed(list(FORMS))} are")
    return replace(FORMS[task](predictor, **options), facts=predictor.facts(), run=predictor.run)
