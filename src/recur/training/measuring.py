"""When a model is measured while it trains, and on how much, so that a budget of minutes is spent on training."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import torch

from recur.i18n import Message
from recur.runs import computing_in
from recur.tasks.contract import Validation
from recur.training.events import Event
from recur.utils.types import Metrics

if TYPE_CHECKING:
    from recur.training.trainer import Trainer

MEASUREMENTS = 10
"""In a run, unless its options say otherwise."""

MEASURING = 0.2
"""The share of a budget of minutes that all measurements together may take, about."""

FEWEST = 200
"""Validation examples that are measured, at least, however long that takes."""


def following(next_measure: float, done: float, every: float) -> float:
    """Where on the way the next measurement is due, after one that was done there."""
    if done - next_measure > 1000 * every:  # a budget of a moment, or of measurements without an end
        next_measure = done + max(every, 1e-6 * done)
    while next_measure <= done + 1e-9:
        next_measure += every
    return next_measure


def validate(trainer: Trainer, begun: float) -> Validation:
    """On the validation part. Where ten times all of it would eat the minutes, on every so many of its examples, from
    the first measurement on, so that figures of one run are of the same ones."""
    task, data, o = trainer.task, trainer.data, trainer.options
    found = task.validate(trainer.model, task.thinned(data, trainer.thin))
    if o.minutes is None or trainer.measured_at or o.measure:
        return found
    wanted = math.ceil((time.monotonic() - begun) / (MEASURING / MEASUREMENTS * 60 * o.minutes))
    parts = task.measured(data)
    trainer.thin = max(1, min(wanted, parts // FEWEST))
    if trainer.thin == 1:
        return found
    note = Message(
        "of {parts} to measure on, one in {thin} is measured while training, and all of them at the end",
        parts=f"{parts:,}",
        thin=trainer.thin,
    )
    trainer.callback(Event("note", {"text": note}))
    return task.validate(trainer.model, task.thinned(data, trainer.thin))


def validated(trainer: Trainer, begun: float) -> tuple[float, Metrics, str, str, int]:
    """A validation, a sample to watch, and how much was measured on."""
    trainer.model.eval()
    with torch.no_grad():
        with computing_in(trainer.stepper.precision, trainer.device):
            found = validate(trainer, begun)
        sample = trainer.task.sample(trainer.model, trainer.data)
    trainer.model.train()
    return *found, sample, trainer.thin


def measure_best(trainer: Trainer) -> None:
    """The best weights, on all of the validation part."""
    begun = time.monotonic()

    def measured() -> tuple[Metrics, float]:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and then replaced
            best = trainer.task.new_model(trainer.run.vocabs).to(trainer.device).eval()
            trainer.run.load_weights(best)
            with computing_in(trainer.stepper.precision, trainer.device):
                found = trainer.task.validate(best, trainer.data).metrics
            trainer.run.save_weights(best, step=trainer.step, **found)
        return found, time.monotonic() - begun

    trainer.best_metrics, trainer.last_measuring = trainer.ranks.first(measured)
    trainer.measuring += trainer.last_measuring
    trainer.checkpoint()
