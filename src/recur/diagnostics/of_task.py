"""Which probes fit a task: what its models get wrong, looked at as its users would."""

from __future__ import annotations

from typing import Any

from recur.diagnostics.attention import attention
from recur.diagnostics.classes import classes, judge, length
from recur.diagnostics.depth import tree_depth
from recur.diagnostics.finding import Measurement
from recur.diagnostics.inputs import inputs
from recur.diagnostics.residuals import residuals_and_bands
from recur.diagnostics.sentence import sentence
from recur.diagnostics.subject import Subject
from recur.tasks.forecast.predictor import SeriesForecaster
from recur.tasks.predictor import Predictor
from recur.tasks.seq2seq.predictor import Transducer
from recur.tasks.signals import SignalTask
from recur.tasks.tree.predictor import TreeClassifier


def of_task(predictor: Predictor[Any], subject: Subject | None, text: str = "") -> list[Measurement]:
    """On the validation part, where what the run learned from is here; `text` is a sentence to follow gates along."""
    found: list[Measurement] = []
    if subject is not None and isinstance(predictor.task, SignalTask):
        found.append(inputs(subject))
    if predictor.has_training_texts():
        judged = judge(predictor)
        if judged is not None and judged.targets:
            found += [classes(judged)] + ([length(judged)] if judged.sizes else [])
        if isinstance(predictor, Transducer):
            found.append(attention(predictor))
        if isinstance(predictor, TreeClassifier):
            found.append(tree_depth(predictor))
        if isinstance(predictor, SeriesForecaster):
            found += residuals_and_bands(predictor)
    if subject is not None and (text or predictor.has_training_texts()):
        along = sentence(predictor, subject, text)
        found += [] if along is None else [along]
    return found
