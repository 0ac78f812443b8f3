"""What the figures measured in the course of a training say of it: whether it diverged, overfitted, learned by heart,
or was ended while it got better. Each comes with the option to try."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from recur.i18n import Message, from_json
from recur.tasks.contract import Remark, Task
from recur.tasks.metrics import metric_of, show, words
from recur.utils.types import JsonObject

ENOUGH = 5
"""Measurements from which on a trend is one."""

FALLING = 0.05
"""What the second half of a run takes off the figure or its loss, at least, where it has not ended."""

WORSE = 0.03
"""By how much the last figure is worse than the best, at least, where a network overfits."""

EARLY = 0.75
"""A best figure of a later part of the run is no sign of that."""

WIDE = 0.18
"""Of the validation loss: where the training loss lies further below it, more time teaches by heart. On seven sets of
five tasks at four or five budgets each, twice the time helped all 22 runs that were told to take it, by 3 to 64 % of
the figure, and one of the four that were not."""

TURNED = 0.01
"""By how much of itself the loss has risen, at least, where a network overfits."""

UNSTABLE = 0.1
"""Nats above its best at which the loss ends, where training diverges and does not overfit."""

AnyTask = Task[Any, Any, Any, Any]


def training(task: AnyTask, history: Sequence[JsonObject]) -> list[Remark]:
    """Whether figures were still getting better, or had begun to get worse."""
    name, entries = task.curve, [entry for entry in history if is_number(entry.get(task.curve))]
    values = [to_lose(name, float(entry[name])) for entry in entries]
    losses = [float(entry["valid_loss"]) for entry in entries if is_number(entry.get("valid_loss"))]
    if diverged := divergence(task, history):
        return [diverged]
    if len(values) < ENOUGH:
        return []
    if overfits := _overfits(task, entries, values, losses):
        return [overfits]
    if second_half(task, history) <= FALLING or min(values) == 0.0:  # which cannot become better
        return []
    longer = Message("{metric} was still getting better when it ended", metric=words(name))
    return [by_heart(task, entries) or Remark(longer, longer_option(task), "longer")]


def second_half(task: AnyTask, history: Sequence[JsonObject]) -> float:
    """The share that the second half of a run took off its figure or its loss, where it ended with its best."""
    entries = [entry for entry in history if is_number(entry.get(task.curve))]
    values = [to_lose(task.curve, float(entry[task.curve])) for entry in entries]
    losses = [float(entry["valid_loss"]) for entry in entries if is_number(entry.get("valid_loss"))]
    return max(gain(values), gain(losses) if len(losses) == len(values) else 0.0) if len(values) > 1 else 0.0


def divergence(task: AnyTask, history: Sequence[JsonObject]) -> Remark | None:
    """Whether training came to an end by itself, or its loss ends far above its best while that on what it learns from
    has not fallen below: that would be overfitting."""
    rate = f"--rate {task.options.rate / 10:g}"
    ended = next((entry for entry in history if entry.get("diverged")), None)
    if ended is not None:
        sentence = Message(
            "it diverged at step {step:,}: {what}",
            step=ended["step"],
            what=from_json(ended.get("message") or str(ended["diverged"])),
        )
        return Remark(sentence, rate, "diverges")
    entries = [entry for entry in history if is_number(entry.get("valid_loss")) and is_number(entry.get("train_loss"))]
    losses = [float(entry["valid_loss"]) for entry in entries]
    if len(losses) < 2:
        return None
    best, last, learned = min(losses), losses[-1], float(entries[-1]["train_loss"])
    if not task.likelihood or last - best <= max(UNSTABLE, WORSE * abs(best)) or learned < best:
        return None
    sentence = Message(
        "it diverges: its loss was {best:.3f} and rose to {last:.3f}, and to {learned:.3f} on what it learns from",
        best=best, last=last, learned=learned,
    )  # fmt: skip
    return Remark(sentence, rate, "diverges")


def _overfits(
    task: AnyTask, entries: Sequence[JsonObject], values: Sequence[float], losses: Sequence[float]
) -> Remark | None:
    """Whether the figure has turned, to be seen in what is printed, and the loss by more than its standard error."""
    at, error = values.index(min(values)), standard_error(entries)
    if len(losses) == len(values):
        turned = _has_turned(values, WORSE) and _has_turned(losses, max(TURNED, error))
    else:
        turned = _has_turned(values, max(WORSE, error))
    best, last = (show(task.curve, entries[k][task.curve]) for k in (at, -1))
    if not turned or best == last:
        return None
    sentence = Message(
        "it overfits: it was best after {step:,} of {steps:,} steps, {best} then, {last} at the end",
        step=entries[at]["step"], steps=entries[-1]["step"], best=best, last=last,
    )  # fmt: skip
    return Remark(sentence, _more_dropout(task), "overfits")


def standard_error(entries: Sequence[JsonObject]) -> float:
    """Of the difference of two mean losses over the same n examples, as a share of them; 0 where n is not known. Of one
    it is 1/√n, where examples scatter as much as they are large; of the difference √(2 (1 − ρ)/n), half of that where
    what is hard is hard for both (ρ = 7/8). Chosen on thirteen sets (`python -m bench overfitting`)."""
    examples = entries[-1].get("measured")
    return 0.5 / math.sqrt(examples) if isinstance(examples, int) and examples > 0 else 0.0


def by_heart(task: AnyTask, entries: Sequence[JsonObject]) -> Remark | None:
    """Where the training loss lies far below the other one."""
    losses = [entries[-1].get(name) for name in ("train_loss", "valid_loss")]
    if not all(map(is_number, losses)):
        return None
    learned, other = (float(loss or 0.0) for loss in losses)
    if other - learned <= WIDE * abs(other):
        return None
    sentence = Message(
        "it learns its examples by heart: its loss is {learned:.3f} there and {other:.3f} on what it has not seen",
        learned=learned, other=other,
    )  # fmt: skip
    return Remark(sentence, _more_dropout(task), "by heart")


def _has_turned(values: Sequence[float], by: float) -> bool:
    """Whether the best of them came early, and the last is clearly worse."""
    best = min(values)
    return values.index(best) + 1 <= EARLY * len(values) and values[-1] - best > by * (abs(best) or 1.0)


def gain(values: Sequence[float]) -> float:
    """What the second half took off, where it ended with its best."""
    half, best = min(values[: len(values) // 2]), min(values)
    ended = values.index(best) + 2 >= len(values)
    return (half - best) / (abs(half) or 1.0) if ended else 0.0


def to_lose(name: str, value: float) -> float:
    """A figure of which less is better, 0 being the best there is, where there is one."""
    if not metric_of(name).higher:
        return value
    return (1.0 if metric_of(name).share else 100.0 if metric_of(name).digits == 1 else 0.0) - value


def longer_option(task: AnyTask) -> str:
    """Twice the budget, whichever part of it ended the run."""
    o = task.options
    budget = (("minutes", o.minutes), ("epochs", o.epochs), ("steps", o.steps))
    return " ".join(f"--{option} {2 * value:g}" for option, value in budget if value is not None)


def _more_dropout(task: AnyTask) -> str:
    o = task.options
    now = getattr(o, "dropout_output", None)
    if now is None or now >= 0.7:
        return f"--epochs {o.epochs / 2:g}" if o.epochs else ""
    return f"--dropout-output {min(now + 0.2, 0.7):g}"


def larger_option(task: AnyTask) -> str:
    hidden = getattr(task.options, "hidden", None)
    return f"--hidden {2 * hidden}" if hidden else ""


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
