"""Probes of training: the course of the loss, the learning rate, overfitting, and the comparison with baselines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from recur.diagnostics.finding import Finding, Level, Measurement, Try, longer, more_dropout, slower
from recur.errors import RecurError
from recur.i18n import Message
from recur.tasks.common.contract import Baseline, Remark, TrainingProgress
from recur.tasks.common.metrics import best_value, format_metric, is_better, metric_label, metric_of
from recur.tasks.common.options import TaskOptions
from recur.tasks.common.predictor import Predictor
from recur.tasks.common.verdict import ENOUGH, FEW_STEPS, divergence, few_steps
from recur.tasks.common.verdict import training_remarks as training_remarks
from recur.utils.types import JsonObject, Metrics

LEVEL = 0.03
"""Relative difference below which a result counts as equal to that of a baseline."""


def baselines_of(predictor: Predictor[Any]) -> list[Baseline]:
    """Return the baselines of the run."""
    return [Baseline(str(one["name"]), float(one["value"]), one["metrics"]) for one in predictor.run.baselines() or ()]


def best_metrics(predictor: Predictor[Any], entries: list[JsonObject]) -> Metrics:
    """Return the validation metrics of the weights that the run kept: the best ones, or the last ones (--keep last)."""
    curve = predictor.task.curve
    measured = [entry for entry in entries if isinstance(entry.get(curve), int | float)]
    if not measured:
        return {}
    if predictor.task.options.keep == "last":
        kept = measured[-1]
    else:
        best = best_value(curve, [float(entry[curve]) for entry in measured])
        as_good = [entry for entry in measured if float(entry[curve]) == best]
        kept = min(as_good, key=lambda entry: float(entry.get("valid_loss", 0.0)))
    return {name: float(v) for name, v in kept.items() if name.startswith("valid_") and isinstance(v, int | float)}


def clearly_behind(curve: str, value: float, plain: Sequence[Baseline]) -> bool:
    """Return True if a baseline is better by more than the share LEVEL."""
    best = best_value(curve, [one.value for one in plain])
    allowed = best * (1 - LEVEL) if metric_of(curve).higher else best * (1 + LEVEL)
    return is_better(curve, allowed, value)


MAX_FIT_EXAMPLES = 4000
"""Predictions that the training loss is averaged over."""
MOST = 400
"""Largest number of batches."""
SKIPPED = 0.25
"""Share of the batches that only warm up a carried state."""
ADAM = 0.23
"""Step size of Adam in units of the learning rate, for a gradient that is noise."""
DRAWS = 2
FRACTIONS = (1.0, 1 / 10, 1 / 30, 1 / 100)
"""Fractions of the learning rate at which the loss after a random step is measured."""


class Fit(NamedTuple):
    learned: float
    """Training loss without dropout."""
    nudged: dict[float, float]
    """Loss after a random step, by learning rate."""


def measure_fit(predictor: Predictor[Any], entries: list[JsonObject], seed: int = 0) -> Fit | None:
    """Measure the training loss and its sensitivity to random steps; None if the training data is not available."""
    if not predictor.has_training_texts() and "texts" in predictor.task.options.names():
        return None
    try:
        batches = _some_batches(predictor)
    except RecurError:
        return None
    model: nn.Module = predictor.model
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    options, generator = predictor.task.options, torch.Generator().manual_seed(seed)
    nudged = {}
    try:
        learned = _loss(predictor, batches)
        for fraction in FRACTIONS:
            rate = fraction * options.lr
            losses = []
            for _ in range(DRAWS):
                size, drawn = step_size(options, model, entries) * fraction, generator.get_state()
                for sign in (1, -1):  # there and back: what is left is the curvature, not the slope
                    generator.set_state(drawn)
                    _move(model, before, sign * size, generator)
                    losses.append(_loss(predictor, batches))
            nudged[rate] = sum(losses) / len(losses)
    finally:
        _move(model, before, 0.0, generator)
    return Fit(learned, nudged)


def step_size(options: TaskOptions, model: nn.Module, entries: list[JsonObject]) -> float:
    """Return by how much a training step moves a weight at the largest learning rate."""
    if options.optimizer in ("adam", "adamw"):
        return ADAM * options.lr
    norms = [float(entry["grad_norm"]) for entry in entries if isinstance(entry.get("grad_norm"), int | float)]
    norm = sum(norms) / len(norms) if norms else 1.0
    norm = min(norm, options.grad_clip) if options.grad_clip else norm
    weights = sum(p.numel() for p in model.parameters())
    return options.lr * norm / math.sqrt(weights) / (1 - min(options.momentum or 0.0, 0.99))


def _some_batches(predictor: Predictor[Any]) -> list[Any]:
    data = predictor.task.read(predictor.run.vocabs)
    return list(itertools.islice(predictor.task.batches(data).batches(0), MOST))


@torch.no_grad()
def _move(model: nn.Module, to: dict[str, torch.Tensor], size: float, generator: torch.Generator) -> None:
    for name, p in model.named_parameters():
        p.copy_(to[name])
        if size:
            p.add_(torch.randn(p.shape, generator=generator).to(p), alpha=size)


@torch.no_grad()
def _loss(predictor: Predictor[Any], batches: list[Any]) -> float:
    """Return the mean loss over the predictions after the warm-up batches."""
    total = count = 0.0
    skip = 0
    for loss, predictions in _losses(predictor, batches):
        skip += predictions
        if skip > SKIPPED * MAX_FIT_EXAMPLES or len(batches) < 4:
            total, count = total + loss * predictions, count + predictions
        if count >= MAX_FIT_EXAMPLES:
            break
    return total / count if count else math.nan


def _losses(predictor: Predictor[Any], batches: list[Any]) -> Iterator[tuple[float, int]]:
    state = None
    for batch in batches:
        found = predictor.task.training_step(predictor.model, batch, state, TrainingProgress(0, 0, 1.0))
        state = found.state
        yield float(found.loss), found.predictions


# What is concluded ----------------------------------------------------------------------------------------


COARSE = 0.002
"""Increase of the loss, in nats, from which a random step is too large. Runs with a planted rate had 0.003 to 1,
others less than 0.001."""
FINE = 0.0005
"""Increase of the loss, in nats, up to which a learning rate is recommended instead."""
NO_GAP = 0.015
"""Relative gap between training and validation loss below which there is no overfitting."""


def rate_finding(fit: Fit, options: TaskOptions) -> Finding:
    """Return the finding on the learning rate: whether a random step of its size raises the loss."""
    cost = fit.nudged[options.lr] - fit.learned
    detail = Message(
        "a random step of the size of --lr {rate:g} changes the loss from {before:.3f} to {after:.3f}",
        rate=options.lr, before=fit.learned, after=fit.nudged[options.lr],
    )  # fmt: skip
    if not cost > COARSE:
        return Finding(
            "rate", Level.OK, cost, COARSE, Message("the learning rate is not too high: {detail}", detail=detail)
        )
    fine = [rate for rate, loss in fit.nudged.items() if loss - fit.learned < FINE]
    tried = slower(options, options.lr / max(fine, default=min(fit.nudged)))
    verdict = Message("the learning rate is too high: {detail}", detail=detail)
    return Finding("rate", Level.FAULT, cost, COARSE, verdict, (tried,))


def fit_finding(fit: Fit, held_out: float | None) -> Finding:
    """Return the finding on overfitting; `held_out` is the validation loss of the same weights."""
    if held_out is None or not math.isfinite(fit.learned):
        verdict = Message("training loss {learned:.3f}", learned=fit.learned)
        return Finding("fit", Level.UNKNOWN, 0.0, NO_GAP, verdict)
    gap = (held_out - fit.learned) / (abs(held_out) or 1.0)
    verdict = Message(
        "training loss {learned:.3f} (dropout off), validation loss {other:.3f}",
        learned=fit.learned, other=held_out,
    )  # fmt: skip
    return Finding("fit", Level.OK, gap, NO_GAP, verdict)


GUESSING = 1.2
"""Multiple of the loss of uniform guessing, log K, above which training has diverged."""
DROPOUTS = ("dropout_input", "dropout_hidden", "dropout_output", "dropout_weight", "dropout_embedding")
CURVES = ("step", "train_loss", "valid_loss", "grad_norm", "clipped", "lr")
LEVELS = {"diverges": Level.FAULT, "overfits": Level.WARNING, "by heart": Level.WARNING, "longer": Level.WARNING}


def training(predictor: Predictor[Any], entries: list[JsonObject]) -> Measurement:
    """Measure how the training went: converged, diverged, overfitted or too short. `entries` is metrics.jsonl."""
    task = predictor.task
    measured = [entry for entry in entries if isinstance(entry.get(task.curve), int | float)]
    numbers: JsonObject = {key: [entry.get(key) for entry in measured] for key in CURVES}
    numbers["curve"] = {"name": task.curve, "values": [entry[task.curve] for entry in measured]}
    numbers["clip"] = task.options.grad_clip
    numbers["dropout"] = any(getattr(task.options, name) for name in task.options.names() if name in DROPOUTS)
    detail = _detail(task.curve, measured, numbers)
    diverged = divergence(task, entries) or _worse_than_guessing(predictor, measured)
    if diverged is not None:
        return Measurement(_finding(Level.FAULT, diverged, detail, (slower(task.options, 10),)), numbers)
    if len(measured) < ENOUGH:
        verdict = Message(
            "unknown: {count} evaluations are too few to judge the training; {enough} are needed",
            count=len(measured), enough=ENOUGH,
        )  # fmt: skip
        return Measurement(Finding("training", Level.UNKNOWN, len(measured), ENOUGH, verdict), numbers)
    if few_steps(measured):
        verdict = Message(
            "unknown: {count} steps are too few to judge the training; {enough} are needed",
            count=int(measured[-1]["step"]), enough=FEW_STEPS,
        )  # fmt: skip
        return Measurement(Finding("training", Level.UNKNOWN, len(measured), ENOUGH, verdict), numbers)
    for remark in training_remarks(task, entries):
        tries = {
            "overfits": (more_dropout(remark.option),),
            "by heart": (more_dropout(remark.option),),
            "longer": (longer(remark.option),),
        }[remark.kind]
        level = LEVELS[remark.kind]
        if remark.kind == "longer" and not _falls_short(predictor, entries):
            level = Level.OK  # it could be better still, and is good
        return Measurement(_finding(level, remark, detail, tries), numbers)
    verdict = Message("training was stable and has converged: {detail}", detail=detail)
    return Measurement(Finding("training", Level.OK, 0.0, 0.0, verdict), numbers)


def _falls_short(predictor: Predictor[Any], entries: list[JsonObject]) -> bool:
    """Return True if a baseline is clearly better, or there is none."""
    plain, curve = baselines_of(predictor), predictor.task.curve
    value = best_metrics(predictor, entries).get(curve)
    return value is None or not plain or clearly_behind(curve, value, plain)


def _finding(level: Level, remark: Remark, detail: str, tries: tuple[Try, ...]) -> Finding:
    verdict = Message("{remark} ({detail})", remark=remark.text, detail=detail)
    return Finding("training", level, 1.0, 0.0, verdict, tuple(one for one in tries if one.option))


def _detail(curve: str, measured: list[JsonObject], numbers: JsonObject) -> Message:
    if not measured:
        return Message("there are no results")
    figures = [format_metric(curve, float(entry[curve])) for entry in (measured[0], measured[-1])]
    went = Message("{metric} {first} → {last}", metric=metric_label(curve), first=figures[0], last=figures[1])
    if not any(isinstance(v, int | float) for v in numbers["grad_norm"]):
        return went
    return Message(
        "{went}; gradient norm {norm:.2g}, clipped in {clipped:.0%} of the steps",
        went=went, norm=_mean(numbers["grad_norm"]), clipped=_mean(numbers["clipped"]),
    )  # fmt: skip


def _worse_than_guessing(predictor: Predictor[Any], measured: list[JsonObject]) -> Remark | None:
    losses = [float(e["valid_loss"]) for e in measured if isinstance(e.get("valid_loss"), int | float)]
    if not losses or not predictor.task.on_text:
        return None
    best, guess = min(losses), math.log(int(predictor.run.vocab.writable().sum()))
    if best <= GUESSING * guess:
        return None
    sentence = Message(
        "training diverged: the loss of {best:.2f} nats is worse than uniform guessing, {guess:.2f}",
        best=best, guess=guess,
    )  # fmt: skip
    return Remark(sentence, kind="diverges")


def _mean(values: list[object]) -> float:
    found = [float(v) for v in values if isinstance(v, int | float)]
    return sum(found) / len(found) if found else 0.0
