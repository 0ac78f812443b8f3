"""What a probe returns: numbers for figures, and a finding in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from recur.i18n import Language, in_language
from recur.utils.types import JsonObject


class Level(IntEnum):
    """How bad a finding is.

    >>> recur.diagnostics.Level.FAULT > recur.diagnostics.Level.WARNING
    True
    """

    OK = 0
    UNKNOWN = 1
    """Too little was measured to say."""
    WARNING = 2
    FAULT = 3


CAUSES = (
    "network", "training", "rate", "fit", "forgetting", "dead units", "window", "gradient flow", "gradient terms",
    "Jacobians", "saturation", "context", "classes", "attention", "tree depth", "residuals", "bands", "inputs",
    "length", "copying", "stationarity", "position", "spectrum", "memory path", "sentence", "states", "saliency",
    "units",
)  # fmt: skip
"""The probes by name, causes before their effects: a rate that is too high saturates gates, which stop gradients."""


@dataclass(frozen=True)
class Try:
    """One thing to try. Those with an option were measured to help where they are advised: docs/xray.md."""

    option: str
    """Of `recur train`, such as `--rate 0.001`."""
    means: str
    """What that changes, in words."""
    see: str
    """How to see whether it helped."""

    def as_dict(self, language: Language = "en") -> JsonObject:
        return {
            "option": self.option,
            "means": in_language(self.means, language),
            "see": in_language(self.see, language),
        }


@dataclass(frozen=True)
class Finding:
    """One measurement, compared with its threshold.

    >>> from recur.diagnostics import Finding, Level
    >>> finding = Finding("gradient flow", Level.WARNING, 1e-4, 1e-2, "gradients vanish")
    >>> finding.as_dict()["verdict"]
    'gradients vanish'
    """

    probe: str
    """One of CAUSES."""
    level: Level
    value: float
    threshold: float
    verdict: str
    """The conclusion in words, with its numbers."""
    tries: tuple[Try, ...] = ()
    """What to try, the first first; empty where nothing is wrong, or another finding says what is."""

    @property
    def advice(self) -> str:
        """The first thing to try, in a line."""
        return "; ".join(f"{one.option}: {one.means}" for one in self.tries)

    def as_dict(self, language: Language = "en") -> JsonObject:
        return {
            "probe": self.probe,
            "name": in_language(self.probe, language),
            "level": self.level.name.lower(),
            "value": self.value,
            "threshold": self.threshold,
            "verdict": in_language(self.verdict, language),
            "advice": self.advice,
            "try": [one.as_dict(language) for one in self.tries],
        }


@dataclass(frozen=True)
class Measurement:
    """The result of one probe.

    >>> finding = recur.diagnostics.Finding("gradient flow", recur.diagnostics.Level.OK, 0.5, 1e-2, "gradients flow")
    >>> recur.diagnostics.Measurement(finding, {"ratio": 0.5}).numbers
    {'ratio': 0.5}
    """

    finding: Finding
    numbers: JsonObject = field(default_factory=dict)
    """Lists, numbers and strings only: as JSON can hold them."""


def worst_first(findings: list[Finding]) -> list[Finding]:
    """By level; within one level, causes before their effects.

    >>> level = recur.diagnostics.Level
    >>> found = [recur.diagnostics.Finding("fit", at, 0, 1, at.name) for at in (level.OK, level.FAULT)]
    >>> [finding.verdict for finding in recur.diagnostics.worst_first(found)]
    ['FAULT', 'OK']
    """
    return sorted(findings, key=lambda f: (-f.level, CAUSES.index(f.probe)))
