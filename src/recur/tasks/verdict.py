"""What there is to say of a trained model: where it stands beside plain ones, whether its training was long enough or
too long, what its task has to say, and the one option to try.

Kinds of remarks: `ahead`, `level` and `behind` of plain models; `diverges`, `overfits`, `by heart`, `longer`, `begun`,
`larger` of its training; `few` where too little was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from recur.i18n import Message
from recur.tasks.contract import Baseline, Remark
from recur.tasks.learning_curve import (
    ENOUGH,
    FALLING,
    AnyTask,
    by_heart,
    gain,
    is_number,
    larger_option,
    longer_option,
    to_lose,
    training,
)
from recur.tasks.metrics import best_of, better, show, words
from recur.tasks.predictor import Predictor
from recur.utils.types import JsonObject, Metrics

BLIND = ("remembering nothing", "the mean", "the most frequent class")
"""Plain models that do not read their input; so are those that `always` say the same."""

NEAR = 0.85
"""Of what a blind model loses, or of the loss of guessing, log K: a network that loses more has hardly begun."""

ALONE = "valid_network_accuracy"
"""Of a blend with plain models: how often its network is right without them."""


class Verdict(NamedTuple):
    remarks: tuple[str, ...]
    option: str = ""
    """The one to try, such as `--minutes 4`; empty where none is known."""

    def as_json(self) -> JsonObject:
        return {"verdict": list(self.remarks), "try": self.option or None}


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
    value = metrics.get(name)
    remarks = [*standing(name, value, plain), *task.remarks(figures), *training(task, history)]
    if not any(remark.option for remark in remarks):
        if begun := hardly_begun(name, value, plain):
            remarks.append(Remark(begun, longer_option(task), "begun"))
        elif behind(name, value, plain) and (why := _why_behind(task, history)):
            remarks.append(why)
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
        return [Remark(Message("level with {name} in {metric}: {own} against {other}", **about), kind="level")]
    if better(name, best.value, value):
        return [Remark(Message("behind {name} in {metric}: {own} against {other}", **about), kind="behind")]
    if len(plain) == 1:
        return [Remark(Message("ahead of {name}, in {metric}: {own} against {other}", **about), kind="ahead")]
    sentence = Message(
        "ahead of {name}, the best of {count} plain models, in {metric}: {own} against {other}",
        count=len(plain), **about,
    )  # fmt: skip
    return [Remark(sentence, kind="ahead")]


def hardly_begun(name: str, value: float | None, plain: Sequence[Baseline]) -> str:
    """Message of a network that is about as good as a model that does not read its input, unless none is better: then
    there may be nothing to learn. Of its size nothing can be told from it, however long it stood still."""
    blind = [one for one in plain if one.name.startswith("always") or one.name in BLIND]
    if value is None or not blind:
        return ""
    best = next(one for one in blind if one.value == best_of(name, [each.value for each in blind]))
    nothing = NEAR * to_lose(name, best.value)
    reading = [to_lose(name, one.value) for one in plain if one not in blind]
    if to_lose(name, value) < nothing or (reading and min(reading) >= nothing):
        return ""
    return Message("it has hardly begun to learn: {name} is about as good", name=best.name)


def _why_behind(task: AnyTask, history: Sequence[JsonObject]) -> Remark | None:
    """Of a model that plain ones are better than, and that shows no trend; None where that cannot be told."""
    entries = [entry for entry in history if is_number(entry.get(task.curve))]
    if len(entries) < ENOUGH:
        few = Message("too little was measured to say whether it was trained long enough")
        return Remark(few, longer_option(task), "few")
    if learned := by_heart(task, entries):
        return learned
    if ALONE in entries[-1]:  # a blend, whose figures may stand still while its network learns
        return _network_alone(task, entries)
    return Remark(Message("it has learned what it can at this size"), larger_option(task), "larger")


def _network_alone(task: AnyTask, entries: Sequence[JsonObject]) -> Remark | None:
    right = [float(entry[ALONE]) for entry in entries if is_number(entry.get(ALONE))]
    if len(right) < ENOUGH or gain([1.0 - share for share in right]) <= FALLING:
        return None
    sentence = Message(
        "the network alone was still getting better when it ended: {half:.0%} right in the first half of the run, "
        "{last:.0%} at the end",
        half=max(right[: len(right) // 2]), last=max(right),
    )  # fmt: skip
    return Remark(sentence, longer_option(task), "longer")
