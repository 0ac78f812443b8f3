"""How training went: the loss, the gradient's norm and the share of clipped steps, from the run's metrics."""

from __future__ import annotations

import math
from collections.abc import Callable

from recur.probes.context import loss_by_context
from recur.probes.finding import Finding, Level, Measurement
from recur.probes.subject import Subject
from recur.tasks.metrics import best_of, show, words
from recur.tasks.options import TaskOptions
from recur.typedefs import JsonObject

OVERFIT = 0.1
"""Nats by which the loss may end above its best."""
UNSTABLE = 0.1
"""Nats by which the loss may rise above its best so far, while the training loss does not fall."""
GREW, USED = 20.0, 0.2
"""Recurrent weights that are so many times their initial size, in a model whose context is worth fewer nats than this,
have diverged: they grew without learning."""
FEWEST = 3
"""Measurements, before anything is concluded."""
CURVES = ("step", "train_loss", "valid_loss", "grad_norm", "clipped", "rate")


def training(subject: Subject) -> Measurement:
    """Whether the loss fell and stayed low, diverged, or overfitted."""
    return from_metrics(subject, [] if subject.run is None else subject.run.metrics())


def from_metrics(subject: Subject, entries: list[JsonObject]) -> Measurement:
    """The same, from the lines of metrics.jsonl."""
    curve = "valid_loss" if subject.predictor is None else subject.predictor.task.curve
    return of_run(subject.options, entries, curve, lambda: _outgrown(subject))


def of_run(
    options: TaskOptions | None, entries: list[JsonObject], curve: str, outgrown: Callable[[], str] = lambda: ""
) -> Measurement:
    """The same of any run; `outgrown` says whether its weights grew without learning. Where no loss was measured, what
    became of the task's own figure."""
    figures = [float(entry[curve]) for entry in entries if isinstance(entry.get(curve), int | float)]
    if len(figures) >= FEWEST and not any("valid_loss" in entry for entry in entries):
        went = [show(curve, value) for value in (figures[0], figures[-1], best_of(curve, figures))]
        verdict = f"{words(curve)} went from {went[0]} to {went[1]}, at best {went[2]}"
        return Measurement(Finding("training", Level.OK, 0.0, OVERFIT, verdict))
    entries = [entry for entry in entries if isinstance(entry.get("valid_loss"), int | float)]
    numbers = {key: [entry.get(key) for entry in entries] for key in CURVES}
    if options is None or len(entries) < FEWEST:
        verdict = f"{len(entries)} measurements: too few to say how training went"
        return Measurement(Finding("training", Level.OK, 0.0, OVERFIT, verdict), numbers)
    losses = [float(entry["valid_loss"]) for entry in entries]
    best, last = min(losses), losses[-1]
    detail = (
        f"validation loss {losses[0]:.2f} → {last:.2f}, at best {best:.2f}; "
        f"gradient norm {_mean(numbers['grad_norm']):.2g}, {_mean(numbers['clipped']):.0%} of the steps clipped"
    )
    train_losses = [_number(entry.get("train_loss"), math.inf) for entry in entries]
    divergence = outgrown() or _divergence(losses, train_losses)
    if divergence:
        return Measurement(_rate_too_high(options, f"{divergence} ({detail})"), numbers)
    if last > best + OVERFIT and train_losses[-1] < best:
        verdict = f"overfitting: the validation loss rose again while the training loss fell ({detail})"
        advice = "dropout (--dropout-output 0.5), a smaller network, more text, early stopping (--patience 3)"
        return Measurement(Finding("training", Level.WARNING, last - best, OVERFIT, verdict, advice), numbers)
    verdict = f"training is stable: {detail}"
    return Measurement(Finding("training", Level.OK, last - best, OVERFIT, verdict), numbers)


def _rate_too_high(options: TaskOptions, detail: str) -> Finding:
    rate, clip = options.rate, options.clip or 1
    verdict = f"training diverged, the learning rate of {rate:g} is too high: {detail}"
    advice = f"a smaller rate (--rate {rate / 10:g}), and clipping (--clip {clip:g})"
    return Finding("training", Level.FAULT, rate, rate / 10, verdict, advice)


def _outgrown(subject: Subject) -> str:
    """Of a language model: whether its recurrent weights grew and its context is worth nothing."""
    if not subject.is_language:
        return ""
    growth, gain = _weight_growth(subject), _context_gain(subject)
    if growth > GREW and gain < USED:
        return f"recurrent weights are × {growth:.0f} their initial size, and context is worth {gain:.2f} nats"
    return ""


def _divergence(losses: list[float], train_losses: list[float]) -> str:
    """How training diverged, in words; empty if it did not."""
    rise = _rise(losses, train_losses)
    if rise > UNSTABLE or not math.isfinite(losses[-1]):
        return f"the validation loss rose by {rise:.2f} nats"
    return ""


def _rise(losses: list[float], train_losses: list[float]) -> float:
    """The most by which the loss stood above its best so far, where that is not overfitting."""
    best = [min(losses[: k + 1]) for k in range(len(losses))]
    return max((now - low for now, low, own in zip(losses, best, train_losses, strict=True) if own >= low), default=0.0)


def _weight_growth(subject: Subject) -> float:
    """Size of the recurrent weights over 1/√(3H), the deviation that torch draws them with."""
    sizes = [
        float(layer.weights[name].square().mean().sqrt()) * math.sqrt(3 * layer.weights[name].shape[-1])
        for layer in subject.layers
        for name in layer.cell.recurrent_matrices
    ]
    return max(sizes, default=1.0)


def _context_gain(subject: Subject) -> float:
    losses = loss_by_context(subject).numbers["losses"]
    return float(losses[0] - min(losses))


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default


def _mean(values: list[object]) -> float:
    found = [float(v) for v in values if isinstance(v, int | float)]
    return sum(found) / len(found) if found else 0.0
