"""Diagnosis of a run: one condition with its reason and what to try, and an explanation of each probe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from recur.diagnostics.finding import Finding, Level, Measurement, Try, larger, longer, more_dropout
from recur.diagnostics.training import baselines_of, best_metrics, clearly_behind
from recur.i18n import Language, Message, translate
from recur.tasks.common.classification import class_names
from recur.tasks.common.contract import Baseline, Remark
from recur.tasks.common.metrics import format_metric, metric_label, metric_of
from recur.tasks.common.predictor import Predictor
from recur.tasks.common.verdict import (
    ENOUGH,
    FALLING,
    NEAR,
    all_remarks,
    distance_to_best,
    longer_option,
    no_progress_message,
    second_half,
)
from recur.utils.types import JsonObject, Metrics

EXPLANATIONS = {
    "network": Message("Which parts of the network can be measured."),
    "training": Message(
        "The loss measures the prediction error: lower is better. It should fall on the training set and on the "
        "validation set. If only the training loss falls, the network overfits."
    ),
    "rate": Message(
        "The learning rate is the size of a training step. All weights are moved by a random step of that size: if "
        "the loss changes a lot, training cannot converge."
    ),
    "fit": Message(
        "Training loss compared with validation loss. A large gap means overfitting. No gap, once the loss has "
        "stopped falling, means that the network is too small."
    ),
    "forgetting": Message(
        "The forget gate decides how much of the memory survives a step: 1 keeps all of it, 0 nothing."
    ),
    "dead units": Message("A dead unit has a constant output and carries no information."),
    "window": Message(
        "Truncated backpropagation stops gradients after one window of steps. This probe predicts tokens from longer "
        "contexts: if those lower the loss, a longer window will help."
    ),
    "gradient flow": Message(
        "The gradient of the last loss with respect to the state k steps earlier, ‖∂L_T/∂s_t‖. Backpropagation "
        "through time multiplies it by a factor per step: below 1 it vanishes, above 1 it explodes. Where it "
        "vanishes, nothing is learned."
    ),
    "gradient terms": Message(
        "The weights are shared by all steps, so their gradient is a sum over steps. Its terms show which steps the "
        "weights learn from."
    ),
    "Jacobians": Message(
        "How a small change of the state grows over k steps. λ₁, the largest Lyapunov exponent, is the logarithm of "
        "its growth per step: below 0 it decays, above 0 it grows."
    ),
    "saturation": Message(
        "A gate near 0 or 1 is saturated: its slope is near zero, so almost no gradient passes. Some saturation is "
        "normal."
    ),
    "context": Message("Loss when the network sees only the last 1, 2, 4 … tokens: how much context it uses."),
    "classes": Message("Confusion matrix and calibration on the validation set."),
    "attention": Message(
        "Attention weights of each output symbol over the source. They should be sharp and, over the whole output, "
        "cover the source."
    ),
    "tree depth": Message(
        "Gradient of the root's class with respect to a leaf k levels below, and accuracy by height."
    ),
    "residuals": Message(
        "Observed value minus forecast. If the residuals follow a pattern, a better forecast is possible."
    ),
    "bands": Message("An 80 % prediction interval should cover 80 % of the observed values."),
    "inputs": Message("Which input features the output depends on, by the size of the gradient."),
    "length": Message("Accuracy by input length: errors on long inputs suggest a short memory."),
    "copying": Message("Whether the generated text copies the training text word for word."),
    "stationarity": Message(
        "The weights are shared by all positions. If knowing the position lowers the loss, the text is not stationary."
    ),
    "position": Message("Whether a state carried over from the previous window lowers the loss."),
    "spectrum": Message(
        "Each step multiplies the state by W. Eigenvalues inside the unit circle shrink it, eigenvalues outside make "
        "it grow."
    ),
    "memory path": Message("Path of the gradient back through time: along the memory, or through the gates and W."),
    "sentence": Message("Value of the forget gate at each token of one sentence."),
    "states": Message("Norm of the hidden state at each step."),
    "saliency": Message("Saliency: how much one prediction depends on each earlier token (darker is more)."),
    "units": Message("Units that correlate with a known feature. The text is coloured by the best one."),
}
"""By the probe's name."""


SLOW = 0.10
"""What the second half of a run takes off its figure, below which a network without a gap has no room for more."""
FAST = 0.15
"""… above which a network that is ahead of plain models was ended too early all the same."""
ALL_WRONG = 0.99
"""Of its answers: a network with so many wrong ones has hardly begun, too."""
POINT = 0.01
"""Of accuracy: a smaller difference is none."""
OF_TRAINING = ("over-fitted", "under-trained", "too small")
"""Conditions that contradict a converged training."""
NAMED = {
    "training": "diverging",
    "rate": "rate too high",
    "forgetting": "forget gate closed",
    "dead units": "dead units",
    "window": "window too short",
}
"""Findings that are a cause where they are faults, in the order in which they are looked at."""


@dataclass(frozen=True)
class Diagnosis:
    condition: str
    """One of those above."""
    level: Level
    standing: str
    """The score beside its baseline."""
    reason: str
    """What was measured."""
    also: tuple[str, ...] = ()
    """What else there is to say of it."""
    tries: tuple[Try, ...] = ()
    """What to try, the first first."""

    def as_dict(self, language: Language = "en") -> JsonObject:
        return {
            "condition": self.condition,
            "name": translate(self.condition, language),
            "level": self.level.name.lower(),
            "standing": translate(self.standing, language),
            "reason": translate(self.reason, language),
            "also": [translate(one, language) for one in self.also],
            "try": [one.as_dict(language) for one in self.tries],
        }


def diagnose(
    predictor: Predictor[Any], findings: Sequence[Finding], entries: list[JsonObject], learned: float | None = None
) -> Diagnosis:
    """Diagnose a trained model.

    Args:
        findings: results of its probes
        entries: lines of its metrics.jsonl
        learned: its loss on the training set
    """
    task = predictor.task
    plain = baselines_of(predictor)
    metrics = best_metrics(predictor, entries)
    remarks = {r.kind or f"other {k}": r for k, r in enumerate(all_remarks(task, metrics, plain, entries))}
    standing = _standing(task.curve, metrics, remarks)
    shown = tuple(r.text for kind, r in remarks.items() if kind not in ("ahead", "level", "behind"))
    by_probe = {finding.probe: finding for finding in findings}
    for probe, condition in NAMED.items():
        finding = by_probe.get(probe)
        if finding is not None and finding.level is Level.FAULT:
            also = tuple(text for text in shown if "diverges" not in remarks or text != remarks["diverges"].text)
            return Diagnosis(condition, Level.FAULT, standing, finding.verdict, also, finding.tries)
    evidence = Known(predictor, by_probe, remarks, metrics, plain, entries, learned)
    condition, level, reason, tries = _of_training(evidence)
    other = remarks["larger"].text if condition == "under-trained" and "larger" in remarks else ""
    also = tuple(text for text in shown if text not in reason and text != other)
    problems = [finding for finding in findings if finding.level > Level.UNKNOWN]
    if level is Level.OK and problems:  # no "no fault" above a list of faults
        level = max(finding.level for finding in problems)
        names = ", ".join(dict.fromkeys(finding.probe for finding in problems))
        reason = Message("the results are good, but {count} of the probes found a problem: {names}",
                         count=len(problems), names=names)  # fmt: skip
        condition = "good, with faults" if level is Level.FAULT else condition
    return Diagnosis(condition, level, standing, reason, also, tries)


Found = tuple[str, Level, str, tuple[Try, ...]]


class Known(NamedTuple):
    """Evidence for a diagnosis."""

    predictor: Predictor[Any]
    findings: dict[str, Finding]
    """By probe."""
    remarks: dict[str, Remark]
    """By kind."""
    metrics: Metrics
    plain: Sequence[Baseline]
    entries: list[JsonObject]
    learned: float | None


def consistent(findings: Sequence[Measurement], diagnosis: Diagnosis | None) -> list[Measurement]:
    """Return the measurements with no "converged" below a diagnosis that training was too short or overfitted."""
    if diagnosis is None or diagnosis.level < Level.WARNING or diagnosis.condition not in OF_TRAINING:
        return list(findings)
    return [
        replace(one, finding=replace(one.finding, level=Level.WARNING, verdict=diagnosis.reason))
        if one.finding.probe == "training" and one.finding.level is Level.OK
        else one
        for one in findings
    ]


def _of_training(evidence: Known) -> Found:
    """Return the findings from the run's metrics, for when no probe has found a cause."""
    predictor, findings, remarks, metrics, plain, entries, _ = evidence
    task = predictor.task
    known = task.curve in metrics and bool(plain)
    behind = known and clearly_behind(task.curve, metrics[task.curve], plain)
    tries = findings["training"].tries if "training" in findings else ()
    if "overfits" in remarks:
        return "over-fitted", Level.FAULT, remarks["overfits"].text, tries
    if "by heart" in remarks and (behind or not known):
        return "over-fitted", Level.FAULT, remarks["by heart"].text, tries or _own(remarks["by heart"])
    flow = findings.get("gradient flow")
    if (behind or not known) and flow is not None and flow.level > Level.UNKNOWN and flow.tries:
        return "gradients vanish", Level.FAULT, flow.verdict, flow.tries
    if begun := _hardly_begun(evidence, behind or not known):
        return "under-trained", Level.FAULT, begun, (longer(longer_option(task)),)
    gain, fit = second_half(task, entries), findings.get("fit")
    no_gap = fit is not None and fit.level is Level.OK and fit.value < fit.threshold
    hidden = getattr(task.options, "hidden_size", None)
    if hidden and (behind or not known) and no_gap and gain < SLOW and fit is not None and _enough(remarks, entries):
        reason = Message(
            "the network is too small: the second half of training improved the loss by only {gain:.0%}, and {fit}",
            gain=gain, fit=fit.verdict,
        )  # fmt: skip
        return "too small", Level.FAULT, reason, (larger(hidden),)
    if "longer" in remarks and (behind or not known or gain > FAST):
        remark = remarks["longer"].text
        taken = Message("{remark}: the second half of training improved it by {gain:.0%}", remark=remark, gain=gain)
        why = taken if gain > FALLING else remark  # which is of the network alone, within a blend
        return "under-trained", Level.FAULT, why, (longer(remarks["longer"].option),)
    if behind and "larger" in remarks and hidden:
        return "too small", Level.FAULT, remarks["larger"].text, (larger(hidden),)
    if "few" in remarks or not known:
        return "not known", Level.UNKNOWN, _why_unknown(remarks, plain, metrics, task.curve), ()
    if behind:
        return (
            "not known",
            Level.UNKNOWN,
            Message("a baseline is better, and no probe found the reason"),
            (),
        )
    if "longer" in remarks:
        reason = Message(
            "no fault was found; {remark}, so more training would help a little", remark=remarks["longer"].text
        )
        return "fine", Level.OK, reason, ()
    return "fine", Level.OK, Message("no fault was found"), ()


def _hardly_begun(evidence: Known, behind: bool) -> str:
    """Return the findings for a network hardly better than chance, from which its best size cannot be judged."""
    predictor, metrics, plain = evidence.predictor, evidence.metrics, evidence.plain
    curve = predictor.task.curve
    if begun := no_progress_message(curve, metrics.get(curve), plain):
        return begun
    blind = [one for one in plain if one.name.startswith("always")]
    own, blind_accuracy = metrics.get("valid_network_accuracy"), _most(blind, "valid_accuracy")
    if behind and own is not None and blind_accuracy is not None and own < blind_accuracy + POINT:
        return Message(
            "the network has learned almost nothing: its accuracy alone is {own:.0%}, the most frequent class has "
            "{other:.0%}",
            own=own, other=blind_accuracy,
        )  # fmt: skip
    if behind and metric_of(curve).share and distance_to_best(curve, metrics.get(curve, 0.0)) >= ALL_WRONG:
        return Message("the network has learned almost nothing: no output is correct")
    loss, guess = _losses(predictor, metrics, evidence.learned)
    if not behind or loss is None or not loss >= NEAR * guess:
        return ""
    return Message(
        "the network has learned almost nothing: its loss is {loss:.2f}, guessing has {guess:.2f}",
        loss=loss,
        guess=guess,
    )


def _losses(predictor: Predictor[Any], metrics: Metrics, learned: float | None) -> tuple[float | None, float]:
    """Return the loss of the network and of guessing, where known."""
    labels = predictor.run.vocabs.get("labels")
    if labels is not None:  # of the network alone: what is measured on may be a blend with plain models
        return learned, math.log(max(len(class_names(labels)), 2))
    if predictor.task.on_text:
        return metrics.get("valid_loss"), math.log(int(predictor.run.vocab.writable().sum()))
    return None, math.inf


def _most(plain: Sequence[Baseline], name: str) -> float | None:
    return max((float(one.metrics[name]) for one in plain if name in one.metrics), default=None)


def _own(remark: Remark) -> tuple[Try, ...]:
    return (more_dropout(remark.option),) if remark.option else ()


def _enough(remarks: dict[str, Remark], entries: list[JsonObject]) -> bool:
    return "few" not in remarks and len(entries) >= ENOUGH


def _why_unknown(remarks: dict[str, Remark], plain: Sequence[Baseline], metrics: Metrics, curve: str) -> str:
    if "few" in remarks:
        return remarks["few"].text
    if curve not in metrics:
        return Message("there are no results on a validation set")
    return Message("no fault was found, but there is no baseline to compare with (--baseline)")


def _standing(curve: str, metrics: Metrics, remarks: dict[str, Remark]) -> str:
    for kind in ("ahead", "level", "behind"):
        if kind in remarks:
            return remarks[kind].text
    if curve in metrics:
        return Message(
            "{metric} {value}; there is no baseline",
            metric=metric_label(curve),
            value=format_metric(curve, metrics[curve]),
        )
    return Message("there are no results on a validation set")
