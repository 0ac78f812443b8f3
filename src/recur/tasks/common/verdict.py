"""Verdict on a training run: divergence, overfitting, comparison with baselines, and one option to try."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from recur.i18n import Message
from recur.tasks.common.contract import Baseline, Remark, Task
from recur.tasks.common.metrics import best_value, format_metric, is_better, metric_label, metric_of
from recur.tasks.common.predictor import Predictor
from recur.utils.types import JsonObject, Metrics

ENOUGH = 5
"""Least number of evaluations that show a trend."""

FEW_STEPS = 50
"""Least number of training steps that show a trend."""

FEW_EXAMPLES = 20
"""Least number of validation examples by which models are compared."""

FALLING = 0.05
"""Least relative improvement in the second half of a run that had not converged."""

WORSE = 0.03
"""Least relative difference between the last and the best value of an overfitting network."""

EARLY = 0.75
"""Share of the run after which the best value is no sign of overfitting."""

WIDE = 0.18
"""Relative gap between training and validation loss above which more time would only overfit.

On seven datasets of five tasks with four or five budgets each, twice the time helped all 22 runs that were advised to
take it, by 3 to 64 % of the metric, and one of the four that were not.
"""

TURNED = 0.01
"""Least relative rise of the loss of an overfitting network."""

UNSTABLE = 0.1
"""Rise of the loss above its best, in nats, that means divergence and not overfitting."""

AnyTask = Task[Any, Any, Any, Any]


def training_remarks(task: AnyTask, history: Sequence[JsonObject]) -> list[Remark]:
    """Return remarks about the learning curve: still improving, overfitting or diverging."""
    name, entries = task.curve, [entry for entry in history if is_number(entry.get(task.curve))]
    values = [distance_to_best(name, float(entry[name])) for entry in entries]
    losses = [float(entry["valid_loss"]) for entry in entries if is_number(entry.get("valid_loss"))]
    if diverged := divergence(task, history):
        return [diverged]
    if len(values) < ENOUGH or few_steps(entries):
        return []
    if overfits := _overfits(task, entries, values, losses):
        return [overfits]
    if second_half(task, history) <= FALLING or min(values) == 0.0:  # which cannot become better
        return []
    longer = Message("{metric} was still improving when training ended", metric=metric_label(name))
    return [memorises(task, entries) or Remark(longer, longer_option(task), "longer")]


def few_steps(entries: Sequence[JsonObject]) -> bool:
    """Return True if a run has too few steps to tell a trend."""
    return bool(entries) and int(entries[-1].get("step", FEW_STEPS)) < FEW_STEPS


def few_examples(entries: Sequence[JsonObject]) -> int:
    """Return the number of validation examples if they are too few to compare models by; else 0."""
    examples = entries[-1].get("measured") if entries else None
    return examples if isinstance(examples, int) and 0 < examples < FEW_EXAMPLES else 0


def second_half(task: AnyTask, history: Sequence[JsonObject]) -> float:
    """Return the relative improvement in the second half of a run that ended near its best value; else 0."""
    entries = [entry for entry in history if is_number(entry.get(task.curve))]
    values = [distance_to_best(task.curve, float(entry[task.curve])) for entry in entries]
    losses = [float(entry["valid_loss"]) for entry in entries if is_number(entry.get("valid_loss"))]
    return max(gain(values), gain(losses) if len(losses) == len(values) else 0.0) if len(values) > 1 else 0.0


def divergence(task: AnyTask, history: Sequence[JsonObject]) -> Remark | None:
    """Return a remark if training stopped by divergence, or if the loss ends far above its best.

    A training loss below the best validation loss means overfitting instead.
    """
    rate = f"--lr {task.options.lr / 10:g}"
    ended = next((entry for entry in history if entry.get("diverged")), None)
    if ended is not None:
        sentence = Message(
            "training diverged at step {step:,}: {what}", step=ended["step"], what=str(ended["diverged"])
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
        "training diverges: validation loss rose from {best:.3f} to {last:.3f}, training loss is {train:.3f}",
        best=best, last=last, train=learned,
    )  # fmt: skip
    return Remark(sentence, rate, "diverges")


def _overfits(
    task: AnyTask, entries: Sequence[JsonObject], values: Sequence[float], losses: Sequence[float]
) -> Remark | None:
    """Return a remark if the metric got visibly worse, and the loss rose by more than its standard error."""
    at, error = values.index(min(values)), standard_error(entries)
    if len(losses) == len(values):
        turned = _has_turned(values, WORSE) and _has_turned(losses, max(TURNED, error))
    else:
        turned = _has_turned(values, max(WORSE, error))
    turned = turned and values[-1] - min(values) > share_error(task.curve, min(values), entries)
    best, last = (format_metric(task.curve, entries[k][task.curve]) for k in (at, -1))
    if not turned or best == last:
        return None
    sentence = Message(
        "overfitting: best after {step:,} of {steps:,} steps ({best}), {last} at the end",
        step=entries[at]["step"], steps=entries[-1]["step"], best=best, last=last,
    )  # fmt: skip
    return Remark(sentence, _more_dropout(task), "overfits")


def standard_error(entries: Sequence[JsonObject]) -> float:
    """Return the relative standard error of the difference of two mean losses over the same n examples; 0 if n is
    unknown.

    A mean has the error 1/√n if examples vary as much as their mean. The difference has √(2 (1 − ρ)/n), half of that
    for ρ = 7/8, because hard examples are hard for both. Chosen on thirteen datasets (`python -m bench overfitting`).
    """
    examples = entries[-1].get("measured")
    return 0.5 / math.sqrt(examples) if isinstance(examples, int) and examples > 0 else 0.0


def share_error(name: str, value: float, entries: Sequence[JsonObject]) -> float:
    """Return twice the standard error of the difference of two shares p over the same n examples; 0 if n is unknown.

    At least two examples must have changed. Hard examples are hard for both, as in `standard_error`.
    """
    examples = entries[-1].get("measured")
    if not metric_of(name).share or not isinstance(examples, int) or examples < 1:
        return 0.0
    p = min(max(value, 0.0), 1.0)
    return max(math.sqrt(p * (1 - p) / examples), 1.5 / examples)


def memorises(task: AnyTask, entries: Sequence[JsonObject]) -> Remark | None:
    """Return a remark if the training loss is far below the validation loss."""
    losses = [entries[-1].get(name) for name in ("train_loss", "valid_loss")]
    if not all(map(is_number, losses)):
        return None
    learned, other = (float(loss or 0.0) for loss in losses)
    if other - learned <= WIDE * abs(other):
        return None
    sentence = Message(
        "overfitting: training loss {train:.2f}, validation loss {valid:.2f}",
        train=learned, valid=other,
    )  # fmt: skip
    return Remark(sentence, _more_dropout(task), "by heart")


def _has_turned(values: Sequence[float], by: float) -> bool:
    """Return True if the best value came early and the last is clearly worse."""
    best = min(values)
    return values.index(best) + 1 <= EARLY * len(values) and values[-1] - best > by * (abs(best) or 1.0)


def gain(values: Sequence[float]) -> float:
    """Return the relative improvement in the second half, if the last values are the best; else 0."""
    half, best = min(values[: len(values) // 2]), min(values)
    ended = values.index(best) + 2 >= len(values)
    return (half - best) / (abs(half) or 1.0) if ended else 0.0


def distance_to_best(name: str, value: float) -> float:
    """Return the distance to the best possible value, where there is one; lower is better."""
    if not metric_of(name).higher:
        return value
    return (1.0 if metric_of(name).share else 100.0 if metric_of(name).digits == 1 else 0.0) - value


@runtime_checkable
class OutputDropout(Protocol):
    """Options with dropout before the output layer."""

    @property
    def dropout_output(self) -> float: ...


@runtime_checkable
class HiddenSize(Protocol):
    """Options with a hidden size."""

    @property
    def hidden_size(self) -> int: ...


def longer_option(task: AnyTask) -> str:
    """Return the options that double the budget."""
    o = task.options
    budget = (("minutes", o.minutes), ("epochs", o.epochs), ("steps", o.steps))
    return " ".join(f"--{option} {2 * value:g}" for option, value in budget if value is not None)


def _more_dropout(task: AnyTask) -> str:
    o = task.options
    now = o.dropout_output if isinstance(o, OutputDropout) else 1.0
    if now >= 0.7:
        return f"--epochs {o.epochs / 2:g}" if o.epochs else ""
    return f"--dropout-output {min(now + 0.2, 0.7):g}"


def larger_option(task: AnyTask) -> str:
    o = task.options
    return f"--hidden-size {2 * o.hidden_size}" if isinstance(o, HiddenSize) and o.hidden_size else ""


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


BLIND = ("remembering nothing", "the mean", "the most frequent class")
"""Names of baselines that do not read their input; names that start with `always` are others."""

NEAR = 0.85
"""Share of a blind baseline's loss, or of log K, above which a network has barely started to learn."""

ALONE = "valid_network_accuracy"
"""Metric of the network without the baselines that it is blended with."""


class Verdict(NamedTuple):
    remarks: tuple[str, ...]
    option: str = ""
    """Option to try, such as `--minutes 4`; empty if none is known."""

    def as_json(self) -> JsonObject:
        return {"verdict": list(self.remarks), "try": self.option or None}


def verdict(
    task: AnyTask,
    metrics: Metrics,
    plain: Sequence[Baseline],
    history: Sequence[JsonObject],
    metric: str | None = None,
) -> Verdict:
    """Return the verdict on a model from its metrics, baselines and history.

    `metric` is the metric to compare by; the task's curve by default.
    """
    remarks = all_remarks(task, metrics, plain, history, metric)
    return Verdict(tuple(r.text for r in remarks), next((r.option for r in remarks if r.option), ""))


def all_remarks(
    task: AnyTask,
    metrics: Metrics,
    plain: Sequence[Baseline],
    history: Sequence[JsonObject],
    metric: str | None = None,
) -> list[Remark]:
    """Return the remarks that the verdict consists of."""
    name = metric or task.curve
    figures = {name.removeprefix("valid_"): value for name, value in metrics.items()}
    value = metrics.get(name)
    few = few_examples(history)
    if few:
        compared = [
            Remark(
                Message(
                    "the validation set is too small to judge the model: {n}, and {least} are needed",
                    n=few,
                    least=FEW_EXAMPLES,
                ),
                kind="few",
            )
        ]
        return [*compared, *task.remarks(figures), *([diverged] if (diverged := divergence(task, history)) else [])]
    remarks = [*compare_with_baselines(name, value, plain), *task.remarks(figures), *training_remarks(task, history)]
    if not any(remark.option for remark in remarks):
        if begun := no_progress_message(name, value, plain):
            remarks.append(Remark(begun, longer_option(task), "begun"))
        elif is_behind(name, value, plain) and (why := _why_behind(task, history)):
            remarks.append(why)
    return remarks


def verdict_json(predictor: Predictor[Any], row: JsonObject) -> JsonObject:
    """Return the deciding `metric`, the verdict and the option to try for an evaluated model.

    `row` has the metrics of the model, and those of baselines under `beside`.
    """
    curve = predictor.task.curve.removeprefix("valid_")
    figures = {name: value for name, value in row.items() if isinstance(value, float)}
    metric = curve if curve in figures else "accuracy" if "accuracy" in figures else next(iter(figures), curve)
    plain = [Baseline(one["model"], one[metric]) for one in row.get("beside") or () if metric in one]
    return {"metric": metric, **verdict(predictor.task, figures, plain, predictor.run.metrics(), metric).as_json()}


def is_behind(name: str, value: float | None, plain: Iterable[Baseline]) -> bool:
    return value is not None and any(is_better(name, other.value, value) for other in plain)


def compare_with_baselines(name: str, value: float | None, plain: Sequence[Baseline]) -> list[Remark]:
    """Return a remark that compares a value with the best baseline."""
    if value is None or not plain:
        return []
    best = next(p for p in plain if p.value == best_value(name, [p.value for p in plain]))
    about = {
        "name": best.name,
        "metric": metric_label(name),
        "own": format_metric(name, value),
        "other": format_metric(name, best.value),
    }
    if about["own"] == about["other"]:
        return [Remark(Message("level with {name} in {metric}: {own} vs. {other}", **about), kind="level")]
    if is_better(name, best.value, value):
        return [Remark(Message("behind {name} in {metric}: {own} vs. {other}", **about), kind="behind")]
    if len(plain) == 1:
        return [Remark(Message("ahead of {name} in {metric}: {own} vs. {other}", **about), kind="ahead")]
    sentence = Message(
        "ahead of {name}, the best of {count} baselines, in {metric}: {own} vs. {other}",
        count=len(plain), **about,
    )  # fmt: skip
    return [Remark(sentence, kind="ahead")]


def no_progress_message(name: str, value: float | None, plain: Sequence[Baseline]) -> str:
    """Return a message if a network is about as good as a baseline that does not read its input.

    The message is empty if no baseline is better: then there may be nothing to learn.
    """
    blind = [one for one in plain if one.name.startswith("always") or one.name in BLIND]
    if value is None or not blind:
        return ""
    best = next(one for one in blind if one.value == best_value(name, [each.value for each in blind]))
    nothing = NEAR * distance_to_best(name, best.value)
    reading = [distance_to_best(name, one.value) for one in plain if one not in blind]
    if distance_to_best(name, value) < nothing or (reading and min(reading) >= nothing):
        return ""
    return Message("the model has barely started to learn: {name} is about as good", name=best.name)


def _why_behind(task: AnyTask, history: Sequence[JsonObject]) -> Remark | None:
    """Return the reason why baselines are better, if the learning curve shows no trend; None if it is unknown."""
    entries = [entry for entry in history if is_number(entry.get(task.curve))]
    if len(entries) < ENOUGH or few_steps(entries):
        few = Message("too few steps and evaluations to tell whether training was long enough")
        return Remark(few, longer_option(task), "few")
    if learned := memorises(task, entries):
        return learned
    if ALONE in entries[-1]:  # a blend, whose figures may stand still while its network learns
        return _network_alone(task, entries)
    return Remark(Message("the model has reached the limit of its size"), larger_option(task), "larger")


def _network_alone(task: AnyTask, entries: Sequence[JsonObject]) -> Remark | None:
    right = [float(entry[ALONE]) for entry in entries if is_number(entry.get(ALONE))]
    if len(right) < ENOUGH or gain([1.0 - share for share in right]) <= FALLING:
        return None
    sentence = Message(
        "the network alone was still improving when training ended: accuracy {half:.0%} in the first half of the run, "
        "{last:.0%} at the end",
        half=max(right[: len(right) // 2]), last=max(right),
    )  # fmt: skip
    return Remark(sentence, longer_option(task), "longer")
