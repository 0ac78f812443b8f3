"""What a probe returns: numbers for figures, and a finding in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from recur.typedefs import JsonObject


class Level(IntEnum):
    """How bad a finding is."""

    OK = 0
    WARNING = 1
    FAULT = 2


CAUSES = (
    "training", "network", "window", "forgetting", "dead units", "gradient flow", "gradient terms", "Jacobians",
    "saturation",
    "context", "copying", "stationarity", "position", "spectrum", "memory path", "states", "saliency", "units",
)  # fmt: skip
"""The probes by name, causes before their effects: a rate that is too high saturates gates, which stop gradients."""


@dataclass(frozen=True)
class Finding:
    """One measurement, compared with its threshold."""

    probe: str
    """One of CAUSES."""
    level: Level
    value: float
    threshold: float
    verdict: str
    """The conclusion in words, with its numbers."""
    advice: str = ""
    """What to try; empty where nothing is wrong."""

    def as_dict(self) -> JsonObject:
        return {
            "probe": self.probe,
            "level": self.level.name.lower(),
            "value": self.value,
            "threshold": self.threshold,
            "verdict": self.verdict,
            "advice": self.advice,
        }


@dataclass(frozen=True)
class Measurement:
    """The result of one probe."""

    finding: Finding
    numbers: JsonObject = field(default_factory=dict)
    """Lists, numbers and strings only: as JSON can hold them."""


def worst_first(findings: list[Finding]) -> list[Finding]:
    """By level; within one level, causes before their effects."""
    return sorted(findings, key=lambda f: (-f.level, CAUSES.index(f.probe)))
