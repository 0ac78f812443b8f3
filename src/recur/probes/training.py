"""How training went: the loss, the gradient's norm and the share of clipped steps, from the run's metrics."""

from __future__ import annotations

import math

from recur.probes.context import by_context
from recur.probes.finding import Finding, Level, Seen
from recur.probes.subject import Subject

WORSE = 0.1
"""Nats by which the loss may end above its best."""
RISEN = 0.1
"""Nats by which the loss may rise above its best so far, while the text learnt from is not predicted any better."""
GROWN, USED = 20.0, 0.2
"""Recurrent weights that are so many times what they start as, in a model whose context is worth fewer nats than this,
did not learn: they were thrown there."""
FEW = 3
"""Measurements, before anything is concluded."""


def training(subject: Subject) -> Seen:
    """Whether the loss fell and stayed down, or the rate was too high for that."""
    entries = subject.run.metrics() if subject.run is not None else []
    entries = [entry for entry in entries if isinstance(entry.get("valid_loss"), int | float)]
    numbers = {
        key: [entry.get(key) for entry in entries]
        for key in ("step", "train_loss", "valid_loss", "grad_norm", "clipped", "rate")
    }
    if subject.run is None or len(entries) < FEW:
        verdict = f"{len(entries)} measurements: too few to say how training went"
        return Seen(Finding("training", Level.SOUND, 0.0, WORSE, verdict), numbers)
    config = subject.run.config
    losses = [float(entry["valid_loss"]) for entry in entries]
    best, last = min(losses), losses[-1]
    grown, gain = _growth(subject), _context_gain(subject)
    clipped = _mean(numbers["clipped"])
    norm = _mean(numbers["grad_norm"])
    risen = _rise(losses, [_number(entry.get("train_loss"), math.inf) for entry in entries])
    trained = _number(entries[-1].get("train_loss"), last)
    said = (
        f"valid loss {losses[0]:.2f} → {last:.2f}, at best {best:.2f}; gradient norm {norm:.2g}, {clipped:.0%} clipped"
    )
    lower = f"a smaller rate (--rate {config.rate / 10:g}), and clipping (--clip {config.clip or 1:g})"
    thrown = grown > GROWN and gain < USED
    if thrown or risen > RISEN or not math.isfinite(last):
        what = f"the loss rose by {risen:.2f} nats while it learnt"
        if thrown:
            what = f"recurrent weights are × {grown:.0f} what they start as, and context is worth {gain:.2f} nats"
        verdict = f"the rate of {config.rate:g} is too high: {what} ({said})"
        return Seen(Finding("training", Level.FAULT, config.rate, config.rate / 10, verdict, lower), numbers)
    if last > best + WORSE and trained < best:
        advice = "dropout (--dropout-output 0.5), a smaller network, more text, stopping earlier (--patience 3)"
        verdict = (
            f"the text is being learnt by heart: the loss on other text rose again while training went on ({said})"
        )
        return Seen(Finding("training", Level.CONCERN, last - best, WORSE, verdict, advice), numbers)
    return Seen(
        Finding("training", Level.SOUND, last - best, WORSE, f"training went down and stayed there: {said}"), numbers
    )


def _rise(losses: list[float], learnt: list[float]) -> float:
    """The most by which the loss stood above its best so far, where that is not learning by heart."""
    best = [min(losses[: k + 1]) for k in range(len(losses))]
    return max((now - low for now, low, own in zip(losses, best, learnt, strict=True) if own >= low), default=0.0)


def _growth(subject: Subject) -> float:
    """Size of the weights between states over 1/√(3H), which is what torch draws them with."""
    sizes = [
        float(layer.weights[name].square().mean().sqrt()) * math.sqrt(3 * layer.weights[name].shape[-1])
        for layer in subject.layers
        for name in layer.cell.recurrent_matrices
    ]
    return max(sizes, default=1.0)


def _context_gain(subject: Subject) -> float:
    losses = by_context(subject).numbers["losses"]
    return float(losses[0] - min(losses))


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def _mean(values: list[object]) -> float:
    found = [float(v) for v in values if isinstance(v, int | float)]
    return sum(found) / len(found) if found else 0.0
