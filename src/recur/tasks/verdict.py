"""What there is to say of a trained model: where it stands beside plain ones, whether its training was long enough or
too long, what its task has to say, and the one option to try.

Kinds of remarks: `ahead`, `level` and `behind` of plain models; `diverges`, `overfits`, `by heart`, `longer`, `larger`
of its training; `few` where too little was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from recur.tasks.contract import Baseline, Remark, Task
from recur.tasks.metrics import best_of, better, metric_of, show, words
from recur.tasks.predictor import Predictor
from recur.typedefs import JsonObject, Metrics
from recur.wording import said

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

ALONE = "valid_network_accuracy"
"""Of a blend with plain models: how often its network is right without them."""

UNSTABLE = 0.1
"""Nats above its best at which the loss ends, where training diverges and does not overfit."""


class Verdict(NamedTuple):
    remarks: tuple[str, ...]
    option: str = ""
    """The one to try, such as `--minutes 4`; empty where none is known."""

    def as_json(self) -> JsonObject:
        return {"verdict": list(self.remarks), "try": self.option or None}


AnyTask = Task[Any, Any, Any, Any]


def verdict(
    task: AnyTask,
    metrics: Metrics,
    plain: Sequence[Baseline],
    history: Sequence[JsonObject],
    metric: str | None = None,
) -> Verdict:
    """Of a model with these figures, beside plain ones, after what was measured while it trained. The `metric` to
    compare by is the task's curve, if not given."""
    remarks = all_remarks(task, metrics, plain, history, metric)
    return Verdict(tuple(r.text for r in remarks), next((r.option for r in remarks if r.option), ""))


def all_remarks(
    task: AnyTask,
    metrics: Metrics,
    plain: Sequence[Baseline],
    history: Sequence[JsonObject],
    metric: str | None = None,
) -> list[Remark]:
    """The same, remark by remark."""
    name = metric or task.curve
    figures = {name.removeprefix("valid_"): value for name, value in metrics.items()}
    remarks = [*standing(name, metrics.get(name), plain), *task.remarks(figures), *training(task, history)]
    if not any(remark.option for remark in remarks) and behind(name, metrics.get(name), plain):
        why = _why_behind(task, history)
        remarks += [] if why is None else [why]
    return remarks


def judged(predictor: Predictor[Any], row: JsonObject) -> JsonObject:
    """What there is to say of a trained model that was measured: the `metric` that decides, the verdict and the option
    to try; `row` has its figures, and those of plain models `beside` them."""
    curve = predictor.task.curve.removeprefix("valid_")
    figures = {name: value for name, value in row.items() if isinstance(value, float)}
    metric = curve if curve in figures else "accuracy" if "accuracy" in figures else next(iter(figures), curve)
    plain = [Baseline(one["model"], one[metric]) for one in row.get("beside") or () if metric in one]
    return {"metric": metric, **verdict(predictor.task, figures, plain, predictor.run.metrics(), metric).as_json()}


def behind(name: str, value: float | None, plain: Iterable[Baseline]) -> bool:
    return value is not None and any(better(name, other.value, value) for other in plain)


def standing(name: str, value: float | None, plain: Sequence[Baseline]) -> list[Remark]:
    """Where a figure stands among those of plain models."""
    if value is None or not plain:
        return []
    best = next(p for p in plain if p.value == best_of(name, [p.value for p in plain]))
    about = {"name": best.name, "metric": words(name), "own": show(name, value), "other": show(name, best.value)}
    if about["own"] == about["other"]:
        return [Remark(said("level with {name} in {metric}: {own} against {other}", **about), kind="level")]
    if better(name, best.value, value):
        return [Remark(said("behind {name} in {metric}: {own} against {other}", **about), kind="behind")]
    if len(plain) == 1:
        return [Remark(said("ahead of {name}, in {metric}: {own} against {other}", **about), kind="ahead")]
    sentence = said(
        "ahead of {name}, the best of {count} plain models, in {metric}: {own} against {other}",
        count=len(plain), **about,
    )  # fmt: skip
    return [Remark(sentence, kind="ahead")]


def training(task: AnyTask, history: Sequence[JsonObject]) -> list[Remark]:
    """Whether figures were still getting better, or had begun to get worse."""
    name, entries = task.curve, [entry for entry in history if _number(entry.get(task.curve))]
    values = [to_lose(name, float(entry[name])) for entry in entries]
    losses = [float(entry["valid_loss"]) for entry in entries if _number(entry.get("valid_loss"))]
    if diverged := divergence(task, history):
        return [diverged]
    if len(values) < ENOUGH:
        return []
    if _has_turned(values) and (len(losses) < len(values) or _has_turned(losses, TURNED)):
        at = values.index(min(values))
        sentence = said(
            "it overfits: it was best after {step:,} of {steps:,} steps, {best} then, {last} at the end",
            step=entries[at]["step"], steps=entries[-1]["step"],
            best=show(name, entries[at][name]), last=show(name, entries[-1][name]),
        )  # fmt: skip
        return [Remark(sentence, _more_dropout(task), "overfits")]
    if second_half(task, history) <= FALLING or min(values) == 0.0:  # which cannot become better
        return []
    longer = said("{metric} was still getting better when it ended", metric=words(name))
    return [_by_heart(task, entries) or Remark(longer, longer_option(task), "longer")]


def second_half(task: AnyTask, history: Sequence[JsonObject]) -> float:
    """The share that the second half of a run took off its figure or its loss, where it ended with its best."""
    entries = [entry for entry in history if _number(entry.get(task.curve))]
    values = [to_lose(task.curve, float(entry[task.curve])) for entry in entries]
    losses = [float(entry["valid_loss"]) for entry in entries if _number(entry.get("valid_loss"))]
    return max(_gain(values), _gain(losses) if len(losses) == len(values) else 0.0) if len(values) > 1 else 0.0


def divergence(task: AnyTask, history: Sequence[JsonObject]) -> Remark | None:
    """Whether training came to an end by itself, or its loss ends far above its best while that on what it learns from
    has not fallen below: that would be overfitting."""
    rate = f"--rate {task.options.rate / 10:g}"
    ended = next((entry for entry in history if entry.get("diverged")), None)
    if ended is not None:
        sentence = said("it diverged at step {step:,}: {what}", step=ended["step"], what=str(ended["diverged"]))
        return Remark(sentence, rate, "diverges")
    entries = [entry for entry in history if _number(entry.get("valid_loss")) and _number(entry.get("train_loss"))]
    losses = [float(entry["valid_loss"]) for entry in entries]
    if len(losses) < 2:
        return None
    best, last, learned = min(losses), losses[-1], float(entries[-1]["train_loss"])
    if not task.likelihood or last - best <= max(UNSTABLE, WORSE * abs(best)) or learned < best:
        return None
    sentence = said(
        "it diverges: its loss was {best:.3f} and rose to {last:.3f}, and to {learned:.3f} on what it learns from",
        best=best, last=last, learned=learned,
    )  # fmt: skip
    return Remark(sentence, rate, "diverges")


def _by_heart(task: AnyTask, entries: Sequence[JsonObject]) -> Remark | None:
    """Where the training loss lies far below the other one."""
    losses = [entries[-1].get(name) for name in ("train_loss", "valid_loss")]
    if not all(map(_number, losses)):
        return None
    learned, other = (float(loss or 0.0) for loss in losses)
    if other - learned <= WIDE * abs(other):
        return None
    sentence = said(
        "it learns its examples by heart: its loss is {learned:.3f} there and {other:.3f} on what it has not seen",
        learned=learned, other=other,
    )  # fmt: skip
    return Remark(sentence, _more_dropout(task), "by heart")


def _why_behind(task: AnyTask, history: Sequence[JsonObject]) -> Remark | None:
    """Of a model that plain ones are better than, and that shows no trend; None where that cannot be told."""
    entries = [entry for entry in history if _number(entry.get(task.curve))]
    if len(entries) < ENOUGH:
        few = said("too little was measured to say whether it was trained long enough")
        return Remark(few, longer_option(task), "few")
    if by_heart := _by_heart(task, entries):
        return by_heart
    if ALONE in entries[-1]:  # a blend, whose figures may stand still while its network learns
        return _network_alone(task, entries)
    return Remark(said("it has learned what it can at this size"), _larger(task), "larger")


def _network_alone(task: AnyTask, entries: Sequence[JsonObject]) -> Remark | None:
    right = [float(entry[ALONE]) for entry in entries if _number(entry.get(ALONE))]
    if len(right) < ENOUGH or _gain([1.0 - share for share in right]) <= FALLING:
        return None
    sentence = said(
        "the network alone was still getting better when it ended: {half:.0%} right in the first half of the run, "
        "{last:.0%} at the end",
        half=max(right[: len(right) // 2]), last=max(right),
    )  # fmt: skip
    return Remark(sentence, longer_option(task), "longer")


def _has_turned(values: Sequence[float], by: float = WORSE) -> bool:
    """Whether the best of them came early, and the last is clearly worse."""
    best = min(values)
    return values.index(best) + 1 <= EARLY * len(values) and values[-1] - best > by * (abs(best) or 1.0)


def _gain(values: Sequence[float]) -> float:
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


def _larger(task: AnyTask) -> str:
    hidden = getattr(task.options, "hidden", None)
    return f"--hidden {2 * hidden}" if hidden else ""


def _number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
