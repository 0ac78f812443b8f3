"""All probes on one model and one text, worst first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recur.probes.context import by_context, by_position, saliency
from recur.probes.copying import copying
from recur.probes.finding import Finding, Level, Seen, worst_first
from recur.probes.flow import gradient_flow, window
from recur.probes.gates import dead_units, forgetting, saturation, states
from recur.probes.jacobian import jacobians
from recur.probes.paths import memory_path
from recur.probes.spectrum import spectrum
from recur.probes.stationary import stationarity
from recur.probes.subject import TOKENS, Subject
from recur.probes.training import training
from recur.probes.units import ranked

Probe = Callable[[Subject], Seen]

OF_A_NETWORK: tuple[Probe, ...] = (
    gradient_flow, jacobians, spectrum, memory_path, forgetting, saturation, dead_units, states, window,
)  # fmt: skip
OF_A_LANGUAGE: tuple[Probe, ...] = (by_context, by_position, saliency, ranked, stationarity)
OF_A_RUN: tuple[Probe, ...] = (training, copying)


@dataclass
class Report:
    """What all probes saw."""

    subject: Subject
    seen: list[Seen]

    @property
    def findings(self) -> list[Finding]:
        """All of them, worst first."""
        return worst_first([seen.finding for seen in self.seen])

    @property
    def troubles(self) -> list[Finding]:
        """Those that are not sound, worst first."""
        return [finding for finding in self.findings if finding.level > Level.SOUND]

    def numbers(self, probe: str) -> dict[str, Any]:
        return next((seen.numbers for seen in self.seen if seen.finding.probe == probe), {})

    def as_dict(self) -> dict[str, Any]:
        run = self.subject.run
        return {
            "run": str(run.path) if run is not None else None,
            "cell": repr(self.subject.net.cell),
            "tokens": len(self.subject.inputs) if self.subject.is_language else self.subject.inputs.shape[1],
            "findings": [finding.as_dict() for finding in self.findings],
            "numbers": {seen.finding.probe: seen.numbers for seen in self.seen},
        }

    def figures(self) -> dict[str, Any]:
        """A matplotlib figure for each probe that has one, by the probe's name."""
        from recur.probes.figures import figures

        return figures(self)

    def html(self) -> str:
        """A page that holds all it shows."""
        from recur.probes.page import page

        return page(self)


def xray(
    model: Any,
    text: Any = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    heard: Callable[[str], object] | None = None,
) -> Report:
    """Look into a model while it reads a text.

    model   what `recur.load` or `recur.fit` returned, or any module with a `recur.Recurrent` in it
    text    a str, a `Corpus` or ids; a tensor (B, T, D) for a network; the run's validation text, if not given
    loss    for a module of your own: from what it returns to a scalar of its last step
    tokens  how much of the text is looked at
    seed    for what is drawn: samples, and the cuts of randomized truncation
    heard   called with each probe's name before it starts
    """
    subject = Subject.of(model, text, loss=loss, tokens=tokens)
    subject.seed = seed
    probes = OF_A_NETWORK + (OF_A_LANGUAGE if subject.is_language else ()) + (OF_A_RUN if subject.run else ())
    seen = []
    with torch.enable_grad():
        for probe in probes:
            if heard is not None:
                heard(probe.__name__.replace("_", " "))
            seen.append(probe(subject))
    return Report(subject, seen)
