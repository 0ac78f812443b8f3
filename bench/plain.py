"""What needs no network, to see whether one was worth its training; measured on the validation part of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from recur.series import baselines, mean_scores
from recur.tasks.classes import error_of_always, most_frequent
from recur.tasks.contract import Baseline, Task
from recur.tasks.scores import bleu
from recur.train import Outcome

AnyTask = Task[Any, Any, Any, Any]


def own_baseline(outcome: Outcome) -> Baseline | None:
    """What the run itself says it has to beat."""
    found = outcome.run.baseline()
    return None if found is None else Baseline(found["name"], found["value"])


def plainest(outcome: Outcome) -> Baseline | None:
    """The plainest of all, on the scale of the task's curve; None where there is none."""
    measured = PLAINEST.get(outcome.task.name)
    return None if measured is None else measured(outcome.task)


def copied_source(outcome: Outcome) -> Baseline:
    """BLEU of the source itself: some names and numbers are the same in both languages."""
    pairs = outcome.task.read().valid_pairs
    sources, targets = ([getattr(pair, side).split() for pair in pairs] for side in ("source", "target"))
    return Baseline("a copy of the source", bleu(targets, sources))


def same_class(task: AnyTask) -> Baseline:
    data = task.read()
    return _always([text.label for text in data.train], [text.label for text in data.valid])


def same_tag(task: AnyTask) -> Baseline:
    data = task.read()
    train, valid = ([tag for sentence in part for tag in sentence.tags] for part in (data.train, data.valid))
    return _always(train, valid)


def same_root(task: AnyTask) -> Baseline:
    data = task.read()
    return _always([tree.classes[-1] for tree in data.train], [tree.classes[-1] for tree in data.valid])


def _always(train: Sequence[int], valid: Sequence[int]) -> Baseline:
    return Baseline("always the same class", error_of_always(most_frequent(train), valid))


def last_value(task: Any) -> Baseline:
    rolled = []
    for table in task.read().tables:
        seen = replace(table, values=table.values[: len(table) - task.holdout])  # without the test part
        rolled.append(baselines(seen, len(seen) - task.holdout, task.horizon, task.season, 0)["naive"])
    return Baseline("naive", float(mean_scores(rolled)["mase"]))


PLAINEST: dict[str, Callable[[Any], Baseline]] = {
    "classify": same_class,
    "grid": same_class,
    "tag": same_tag,
    "tree": same_root,
    "forecast": last_value,
}
