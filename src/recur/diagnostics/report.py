"""All probes on one model and one text, worst first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from recur.diagnostics.batch import why_none
from recur.diagnostics.context import loss_by_context, loss_by_position, saliency, window
from recur.diagnostics.copying import copying
from recur.diagnostics.diagnosis import Diagnosis, diagnose
from recur.diagnostics.finding import Finding, Level, Measurement, worst_first
from recur.diagnostics.fitting import COARSE, fit_finding, measure_fit, rate_finding
from recur.diagnostics.flow import gradient_flow
from recur.diagnostics.gates import forgetting, saturation
from recur.diagnostics.jacobian import jacobians
from recur.diagnostics.of_task import of_task
from recur.diagnostics.paths import memory_path
from recur.diagnostics.spectrum import spectrum
from recur.diagnostics.standing import best_metrics
from recur.diagnostics.states import dead_units, states
from recur.diagnostics.stationary import stationarity
from recur.diagnostics.subject import FEWEST, TOKENS, Loss, Subject, Text
from recur.diagnostics.terms import gradient_terms
from recur.diagnostics.training import training
from recur.diagnostics.units import unit_features
from recur.i18n import Language, said
from recur.nn import Recurrent
from recur.tasks.predictor import Predictor
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from recur.runs import Run

Probe = Callable[[Subject], Measurement]

NETWORK_PROBES: tuple[Probe, ...] = (
    gradient_flow, gradient_terms, jacobians, spectrum, memory_path, forgetting, saturation, dead_units, states,
)  # fmt: skip
SHORT_PROBES: tuple[Probe, ...] = (spectrum, forgetting, saturation, dead_units)
"""For sequences of a few steps, along which nothing can be said to vanish."""
LANGUAGE_PROBES: tuple[Probe, ...] = (
    window, loss_by_context, loss_by_position, saliency, unit_features, stationarity,
)  # fmt: skip
TEXT_PROBES: tuple[Probe, ...] = (copying,)


@dataclass
class Report:
    """The measurements of all probes.

    >>> report = recur.xray(recur.Recurrent("gru", 3, 4), torch.randn(2, 20, 3))
    >>> sorted({finding.probe for finding in report.findings})[:2]
    ['Jacobians', 'dead units']
    """

    subject: Subject | None
    """None for a network without a recurrence in time."""
    measurements: list[Measurement]
    predictor: Predictor[Any] | None = None
    """The trained model, of any task."""

    @property
    def run(self) -> Run | None:
        return self.predictor.run if self.predictor is not None else None if self.subject is None else self.subject.run

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        """The verdict that it opens with; None for a network that no run has trained."""
        if self.predictor is None:
            return None
        learned = self.numbers("fit").get("learned")
        return diagnose(self.predictor, self.findings, self.predictor.run.metrics(), learned)

    @property
    def findings(self) -> list[Finding]:
        """All of them, worst first."""
        return worst_first([measurement.finding for measurement in self.measurements])

    @property
    def problems(self) -> list[Finding]:
        """Warnings and faults, worst first."""
        return [finding for finding in self.findings if finding.level > Level.UNKNOWN]

    def numbers(self, probe: str) -> JsonObject:
        """Of a probe by name; empty where it did not run."""
        return next((m.numbers for m in self.measurements if m.finding.probe == probe), {})

    def as_dict(self, language: Language = "en") -> JsonObject:
        run, subject = self.run, self.subject
        return {
            "run": str(run.path) if run is not None else None,
            "cell": None if subject is None else repr(subject.net.cell),
            "tokens": 0 if subject is None else subject.length,
            "part": "" if subject is None else subject.part,
            "diagnosis": None if self.diagnosis is None else self.diagnosis.as_dict(language),
            "findings": [finding.as_dict(language) for finding in self.findings],
            "numbers": {m.finding.probe: m.numbers for m in self.measurements},
        }

    def figures(self, language: Language = "en") -> dict[str, Figure]:
        """A matplotlib figure for each probe that has one, by the probe's name."""
        from recur.diagnostics.figures import figures

        return figures(self, language)

    def html(self, language: Language = "en") -> str:
        """One page without any external resource."""
        from recur.diagnostics.page import page

        return page(self, language)


def xray(
    model: object,
    text: Text | None = None,
    *,
    loss: Loss | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    part: str = "",
    sentence: str = "",
    progress: Callable[[str], object] | None = None,
) -> Report:
    """Run all probes on a model while it reads a text.

    model     what `recur.load` or `recur.fit` returned, or any module with a `recur.Recurrent` in it
    text      a str, a `Corpus` or ids for a language model; a file, or several, of what another task reads; a tensor
              (B, T, D) for a network; if not given, the run's validation text, or a batch of what it learned from
    loss      for a module of your own: from its output to the loss of its last step, a scalar
    tokens    how many tokens of the text are read
    part      of a network with several recurrent parts, such as an encoder and a decoder: which; the largest, if not
              given
    sentence  to follow the forget gate along, token by token; one of the validation part that turns ("…, but …"), if
              not given
    seed      for random numbers: generated text, and the truncation of randomized BPTT
    progress  called with each probe's name before it starts

    >>> report = recur.xray(recur.Recurrent("elman", 3, 4), torch.randn(2, 20, 3))
    >>> report.findings[0].verdict.partition(":")[0]
    'gradients vanish'
    """
    if isinstance(model, Predictor) and not any(isinstance(module, Recurrent) for module in model.model.modules()):
        return Report(None, [_without_time(model), *of_run(model, seed), *of_task(model, None)], model)
    subject = Subject.of(model, text, loss=loss, tokens=tokens, part=part)
    subject.seed = seed
    probes = NETWORK_PROBES if subject.length >= FEWEST else SHORT_PROBES
    if subject.is_language:
        probes += LANGUAGE_PROBES
    if subject.language is not None and subject.language.has_training_texts():
        probes += TEXT_PROBES
    measurements = []
    with torch.enable_grad():
        for probe in probes:
            if progress is not None:
                progress(probe.__name__.replace("_", " "))
            measurements.append(probe(subject))
    if subject.length < FEWEST:
        short = said(
            "not known: sequences of {steps} steps are too short to tell how far gradients reach; {fewest} are needed",
            steps=subject.length, fewest=FEWEST,
        )  # fmt: skip
        measurements.append(Measurement(Finding("network", Level.UNKNOWN, subject.length, FEWEST, short)))
    trained = subject.language or subject.predictor
    if trained is not None:
        measurements += [*of_run(trained, seed), *of_task(trained, subject, sentence)]
    return Report(subject, measurements, trained)


def of_run(predictor: Predictor[Any], seed: int = 0) -> list[Measurement]:
    """How a run was trained, and what its network makes of what it learned from."""
    entries = predictor.run.metrics()
    found = [training(predictor, entries)]
    fit = measure_fit(predictor, entries, seed)
    if fit is not None:
        nudged = list(fit.nudged.values())
        numbers: JsonObject = {"learned": fit.learned, "rates": list(fit.nudged), "nudged": nudged, "limit": COARSE}
        blended = getattr(predictor.model, "blend", None) is not None  # then what was measured is not the network's
        held_out = None if blended else best_metrics(predictor, entries).get("valid_loss")
        found += [
            Measurement(rate_finding(fit, predictor.task.options), numbers),
            Measurement(fit_finding(fit, held_out), {"learned": fit.learned, "held_out": held_out}),
        ]
    return found


def _without_time(predictor: Predictor[Any]) -> Measurement:
    """Of a network in which nothing is carried along time: what is not measured."""
    return Measurement(Finding("network", Level.UNKNOWN, 0.0, 0.0, why_none(predictor)))
