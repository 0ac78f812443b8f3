"""How training went: the loss, the gradient's norm and the share of clipped steps, from the run's metrics.

What is concluded from them is what `recur train` says at its end (recur.tasks.learning_curve), and one thing more: a
loss above that of guessing among all tokens is a network that has diverged, however few measurements there are.
"""

from __future__ import annotations

import math
from typing import Any

from recur.diagnostics.advice import longer, more_dropout, slower
from recur.diagnostics.finding import Finding, Level, Measurement, Try
from recur.diagnostics.standing import best_metrics, clearly_behind, plain_models
from recur.i18n import Said, said
from recur.tasks.contract import Remark
from recur.tasks.learning_curve import ENOUGH, divergence
from recur.tasks.learning_curve import training as training_remarks
from recur.tasks.metrics import show, words
from recur.tasks.predictor import Predictor
from recur.utils.types import JsonObject

GUESSING = 1.2
"""Times the loss of guessing, log K: a network with more has diverged."""
DROPOUTS = ("dropout_input", "dropout_hidden", "dropout_output", "dropout_weight", "dropout_embedding")
CURVES = ("step", "train_loss", "valid_loss", "grad_norm", "clipped", "rate")
LEVELS = {"diverges": Level.FAULT, "overfits": Level.WARNING, "by heart": Level.WARNING, "longer": Level.WARNING}


def training(predictor: Predictor[Any], entries: list[JsonObject]) -> Measurement:
    """Whether the loss fell and stayed low, diverged, or overfitted; `entries` are the lines of metrics.jsonl."""
    task = predictor.task
    measured = [entry for entry in entries if isinstance(entry.get(task.curve), int | float)]
    numbers: JsonObject = {key: [entry.get(key) for entry in measured] for key in CURVES}
    numbers["curve"] = {"name": task.curve, "values": [entry[task.curve] for entry in measured]}
    numbers["clip"] = task.options.clip
    numbers["dropout"] = any(getattr(task.options, name) for name in task.options.names() if name in DROPOUTS)
    detail = _detail(task.curve, measured, numbers)
    diverged = divergence(task, entries) or _worse_than_guessing(predictor, measured)
    if diverged is not None:
        return Measurement(_finding(Level.FAULT, diverged, detail, (slower(task.options, 10),)), numbers)
    if len(measured) < ENOUGH:
        verdict = said(
            "not known: {count} measurements are too few to say how training went; {enough} are needed",
            count=len(measured), enough=ENOUGH,
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
    verdict = said("training was stable and had come to its end: {detail}", detail=detail)
    return Measurement(Finding("training", Level.OK, 0.0, 0.0, verdict), numbers)


def _falls_short(predictor: Predictor[Any], entries: list[JsonObject]) -> bool:
    """Whether a plain model is better, or none was measured."""
    plain, curve = plain_models(predictor), predictor.task.curve
    value = best_metrics(predictor, entries).get(curve)
    return value is None or not plain or clearly_behind(curve, value, plain)


def _finding(level: Level, remark: Remark, detail: str, tries: tuple[Try, ...]) -> Finding:
    verdict = said("{remark} ({detail})", remark=remark.text, detail=detail)
    return Finding("training", level, 1.0, 0.0, verdict, tuple(one for one in tries if one.option))


def _detail(curve: str, measured: list[JsonObject], numbers: JsonObject) -> Said:
    if not measured:
        return said("nothing was measured")
    figures = [show(curve, float(entry[curve])) for entry in (measured[0], measured[-1])]
    went = said("{metric} {first} → {last}", metric=words(curve), first=figures[0], last=figures[1])
    if not any(isinstance(v, int | float) for v in numbers["grad_norm"]):
        return went
    return said(
        "{went}; gradient norm {norm:.2g}, {clipped:.0%} of the steps clipped",
        went=went, norm=_mean(numbers["grad_norm"]), clipped=_mean(numbers["clipped"]),
    )  # fmt: skip


def _worse_than_guessing(predictor: Predictor[Any], measured: list[JsonObject]) -> Remark | None:
    losses = [float(e["valid_loss"]) for e in measured if isinstance(e.get("valid_loss"), int | float)]
    if not losses or not predictor.task.on_text:
        return None
    best, guess = min(losses), math.log(len(predictor.run.vocab))
    if best <= GUESSING * guess:
        return None
    sentence = said(
        "it diverged: its loss of {best:.2f} nats is worse than guessing among all tokens, {guess:.2f}",
        best=best, guess=guess,
    )  # fmt: skip
    return Remark(sentence, kind="diverges")


def _mean(values: list[object]) -> float:
    found = [float(v) for v in values if isinstance(v, int | float)]
    return sum(found) / len(found) if found else 0.0
