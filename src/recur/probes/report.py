"""All probes on one model and one text, worst first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from recur.layers import Recurrent
from recur.probes.batch import why_none
from recur.probes.context import loss_by_context, loss_by_position, saliency
from recur.probes.copying import copying
from recur.probes.finding import Finding, Level, Measurement, worst_first
from recur.probes.flow import gradient_flow, window
from recur.probes.gates import forgetting, saturation
from recur.probes.jacobian import jacobians
from recur.probes.paths import memory_path
from recur.probes.spectrum import spectrum
from recur.probes.states import dead_units, states
from recur.probes.stationary import stationarity
from recur.probes.subject import FEWEST, TOKENS, Loss, Subject, Text
from recur.probes.terms import gradient_terms
from recur.probes.training import of_run, training
from recur.probes.units import unit_features
from recur.tasks.predictor import Predictor
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from recur.run import Run

Probe = Callable[[Subject], Measurement]

NETWORK_PROBES: tuple[Probe, ...] = (
    gradient_flow, gradient_terms, jacobians, spectrum, memory_path, forgetting, saturation, dead_units, states, window,
)  # fmt: skip
SHORT_PROBES: tuple[Probe, ...] = (spectrum, forgetting, saturation, dead_units)
"""For sequences of a few steps, along which nothing can be said to vanish."""
LANGUAGE_PROBES: tuple[Probe, ...] = (loss_by_context, loss_by_position, saliency, unit_features, stationarity)
RUN_PROBES: tuple[Probe, ...] = (training,)
TEXT_PROBES: tuple[Probe, ...] = (copying,)


@dataclass
class Report:
    """The measurements of all probes."""

    subject: Subject | None
    """None for a network without a recurrence in time."""
    measurements: list[Measurement]
    predictor: Predictor[Any] | None = None
    """The trained model, of any task."""

    @property
    def run(self) -> Run | None:
        return self.predictor.run if self.predictor is not None else None if self.subject is None else self.subject.run

    @property
    def findings(self) -> list[Finding]:
        """All of them, worst first."""
        return worst_first([measurement.finding for measurement in self.measurements])

    @property
    def problems(self) -> list[Finding]:
        """Warnings and faults, worst first."""
        return [finding for finding in self.findings if finding.level > Level.OK]

    def numbers(self, probe: str) -> JsonObject:
        """Of a probe by name; empty where it did not run."""
        return next((m.numbers for m in self.measurements if m.finding.probe == probe), {})

    def as_dict(self) -> JsonObject:
        run, subject = self.run, self.subject
        return {
            "run": str(run.path) if run is not None else None,
            "cell": None if subject is None else repr(subject.net.cell),
            "tokens": 0 if subject is None else subject.length,
            "part": "" if subject is None else subject.part,
            "findings": [finding.as_dict() for finding in self.findings],
            "numbers": {m.finding.probe: m.numbers for m in self.measurements},
        }

    def figures(self) -> dict[str, Figure]:
        """A matplotlib figure for each probe that has one, by the probe's name."""
        from recur.probes.figures import figures

        return figures(self)

    def html(self) -> str:
        """One page without any external resource."""
        from recur.probes.page import page

        return page(self)


def xray(
    model: object,
    text: Text | None = None,
    *,
    loss: Loss | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    part: str = "",
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
    seed      for random numbers: generated text, and the truncation of randomized BPTT
    progress  called with each probe's name before it starts
    """
    if isinstance(model, Predictor) and not any(isinstance(module, Recurrent) for module in model.model.modules()):
        return _without_time(model)
    subject = Subject.of(model, text, loss=loss, tokens=tokens, part=part)
    subject.seed = seed
    probes = NETWORK_PROBES if subject.length >= FEWEST else SHORT_PROBES
    if subject.is_language:
        probes += LANGUAGE_PROBES
    if subject.run is not None:
        probes += RUN_PROBES
    if subject.language is not None and subject.language.has_training_texts():
        probes += TEXT_PROBES
    measurements = []
    with torch.enable_grad():
        for probe in probes:
            if progress is not None:
                progress(probe.__name__.replace("_", " "))
            measurements.append(probe(subject))
    if subject.length < FEWEST:
        said = f"sequences of {subject.length} steps are too short to tell how far gradients reach; {FEWEST} are needed"
        measurements.append(Measurement(Finding("network", Level.OK, subject.length, FEWEST, said)))
    return Report(subject, measurements, subject.language or subject.predictor)


def _without_time(predictor: Predictor[Any]) -> Report:
    """Of a network in which nothing is carried along time: what is not measured, and how training went."""
    said = Measurement(Finding("network", Level.OK, 0.0, 0.0, why_none(predictor)))
    went = of_run(predictor.task.options, predictor.run.metrics(), predictor.task.curve)
    return Report(None, [said, went], predictor)
