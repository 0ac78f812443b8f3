"""What a network makes of the examples that it learned from, and how coarse its steps were.

learned     the loss of training batches without dropout. Beside the loss on the validation part it says whether there
            is anything that a network has not learned yet: a gap is what it knows by heart; none, in a network that no
            longer gets better, is what it has no room for
nudged      the same loss after a random step of the size that the optimiser takes at its peak rate. Adam divides its
            mean gradient, over about 1/(1 − β₁) = 10 steps, by its size: where gradients are noise, a weight moves by
            √((1 − β₁)/(1 + β₁)) = 0.23 of the rate. Around that much noise no network can settle
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from recur.diagnostics.advice import slower
from recur.diagnostics.finding import Finding, Level
from recur.errors import RecurError
from recur.i18n import said
from recur.tasks.contract import Moment
from recur.tasks.options import TaskOptions
from recur.tasks.predictor import Predictor
from recur.utils.types import JsonObject

ENOUGH = 4000
"""Predictions that are looked at."""
MOST = 400
"""Batches at most."""
SKIPPED = 0.25
"""The share of batches that are read first, so that a carried state has come to be what it usually is."""
ADAM = 0.23
"""What a weight moves by, in units of the rate, where the gradient is noise."""
DRAWS = 2
FRACTIONS = (1.0, 1 / 10, 1 / 30, 1 / 100)
"""Of the rate, for which the loss after such a step is measured."""


class Fit(NamedTuple):
    learned: float
    """Loss on what was learned from, without dropout."""
    nudged: dict[float, float]
    """The loss after a random step, by its rate."""


def measure_fit(predictor: Predictor[Any], entries: list[JsonObject], seed: int = 0) -> Fit | None:
    """None where what it learned from is not here, or its loss is none that can be taken of a batch."""
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
            rate = fraction * options.rate
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
    """By how much a weight moves in a step at the peak of the rate."""
    if options.optimizer in ("adam", "adamw"):
        return ADAM * options.rate
    norms = [float(entry["grad_norm"]) for entry in entries if isinstance(entry.get("grad_norm"), int | float)]
    norm = sum(norms) / len(norms) if norms else 1.0
    norm = min(norm, options.clip) if options.clip else norm
    weights = sum(p.numel() for p in model.parameters())
    return options.rate * norm / math.sqrt(weights) / (1 - min(options.momentum or 0.0, 0.99))


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
    """The mean over the predictions behind the first batches."""
    total = count = 0.0
    skip = 0
    for loss, predictions in _losses(predictor, batches):
        skip += predictions
        if skip > SKIPPED * ENOUGH or len(batches) < 4:
            total, count = total + loss * predictions, count + predictions
        if count >= ENOUGH:
            break
    return total / count if count else math.nan


def _losses(predictor: Predictor[Any], batches: list[Any]) -> Iterator[tuple[float, int]]:
    state = None
    for batch in batches:
        found = predictor.task.training_step(predictor.model, batch, state, Moment(0, 0, 1.0))
        state = found.state
        yield float(found.loss), found.predictions


# What is concluded ----------------------------------------------------------------------------------------


COARSE = 0.002
"""Nats that a random step of the usual size may cost. Of runs with a planted rate it cost 0.003 to 1, of others less
than 0.001."""
FINE = 0.0005
"""… of a rate to take in its place."""
NO_GAP = 0.015
"""Of the loss on what it has not seen: a smaller difference to that on what it learned from is none."""


def rate_finding(fit: Fit, options: TaskOptions) -> Finding:
    """Whether a step is small enough to settle anywhere."""
    cost = fit.nudged[options.rate] - fit.learned
    detail = said(
        "a random step of the size that --rate {rate:g} makes changes the loss from {before:.3f} to {after:.3f}",
        rate=options.rate, before=fit.learned, after=fit.nudged[options.rate],
    )  # fmt: skip
    if not cost > COARSE:
        return Finding("rate", Level.OK, cost, COARSE, said("steps are small enough: {detail}", detail=detail))
    fine = [rate for rate, loss in fit.nudged.items() if loss - fit.learned < FINE]
    tried = slower(options, options.rate / max(fine, default=min(fit.nudged)))
    verdict = said("the learning rate is too high: {detail}", detail=detail)
    return Finding("rate", Level.FAULT, cost, COARSE, verdict, (tried,))


def fit_finding(fit: Fit, held_out: float | None) -> Finding:
    """How much better it knows what it learned from; `held_out` is the same network's loss on what it has not seen."""
    if held_out is None or not math.isfinite(fit.learned):
        verdict = said("its loss is {learned:.3f} on what it learned from", learned=fit.learned)
        return Finding("fit", Level.UNKNOWN, 0.0, NO_GAP, verdict)
    gap = (held_out - fit.learned) / (abs(held_out) or 1.0)
    verdict = said(
        "its loss is {learned:.3f} on what it learned from, dropout off, and {other:.3f} on what it has not seen",
        learned=fit.learned, other=held_out,
    )  # fmt: skip
    return Finding("fit", Level.OK, gap, NO_GAP, verdict)
