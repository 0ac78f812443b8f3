"""Evaluation while training: when, and on how many validation examples, so that training gets most of the budget."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import torch

from recur.i18n import Message
from recur.runs import autocast_in
from recur.tasks.common.contract import Validation
from recur.training.events import Event
from recur.utils.types import Metrics

if TYPE_CHECKING:
    from recur.training.trainer import Trainer

EVALUATIONS = 10
"""Evaluations in a run whose options set no interval."""

EVALUATION_SHARE = 0.2
"""Fraction of a budget of minutes that all evaluations together may take, about."""

MIN_EXAMPLES = 200
"""Fewest validation examples that are evaluated, however long that takes."""


def next_evaluation(next_measure: float, done: float, every: float) -> float:
    """Return the progress at which the next evaluation is due, after one at `done`."""
    if done - next_measure > 1000 * every:  # a tiny budget or interval: the loop below would take forever
        next_measure = done + max(every, 1e-6 * done)
    while next_measure <= done + 1e-9:
        next_measure += every
    return next_measure


def validate_subset(trainer: Trainer, begun: float) -> Validation:
    """Evaluate on the validation set.

    If evaluating all of it ten times would take too much of a budget of minutes, the first evaluation decides to use
    every n-th example, and all later ones use the same examples, so that the metrics of a run are comparable.
    """
    task, data, o = trainer.task, trainer.data, trainer.options
    found = task.validate(trainer.model, task.thinned(data, trainer.thin))
    if o.minutes is None or trainer.measured_at or o.eval_every:
        return found
    thin = math.ceil((time.monotonic() - begun) / (EVALUATION_SHARE / EVALUATIONS * 60 * o.minutes))
    parts = task.measured(data)
    trainer.thin = max(1, min(thin, parts // MIN_EXAMPLES))
    if trainer.thin == 1:
        return found
    note = Message(
        "evaluating 1 in {thin} of {parts} validation examples while training, and all of them at the end",
        thin=trainer.thin,
        parts=f"{parts:,}",
    )
    trainer.callback(Event("note", {"text": note}))
    return task.validate(trainer.model, task.thinned(data, trainer.thin))


def evaluate_current(trainer: Trainer, begun: float) -> tuple[float, Metrics, str, str, int]:
    """Evaluate the current weights; return the validation, a sample, and the `thin` of the evaluated examples."""
    trainer.model.eval()
    with torch.no_grad():
        with autocast_in(trainer.stepper.precision, trainer.device):
            found = validate_subset(trainer, begun)
        sample = trainer.task.sample(trainer.model, trainer.data)
    trainer.model.train()
    return *found, sample, trainer.thin


def evaluate_best(trainer: Trainer) -> None:
    """Evaluate the best weights on the whole validation set, and save the metrics with them."""
    begun = time.monotonic()

    def measured() -> tuple[Metrics, float]:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # a new model draws weights
            best = trainer.task.new_model(trainer.run.vocabs).float().to(trainer.device).eval()
            trainer.run.load_weights(best)
            with autocast_in(trainer.stepper.precision, trainer.device):
                found = trainer.task.validate(best, trainer.data).metrics
            trainer.run.save_weights(best, step=trainer.step, **found)
        return found, time.monotonic() - begun

    trainer.best_metrics, trainer.last_measuring = trainer.group.from_rank0(measured)
    trainer.measuring += trainer.last_measuring
    trainer.checkpoint()
