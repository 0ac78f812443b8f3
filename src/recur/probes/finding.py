"""What a probe says: numbers for figures, and a finding in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Level(IntEnum):
    """How bad it is."""

    SOUND = 0
    CONCERN = 1
    FAULT = 2


CAUSES = (
    "training", "window", "forgetting", "dead units", "gradient flow", "Jacobians", "saturation",
    "context", "copying", "stationarity", "position", "spectrum", "memory path", "states", "saliency", "units",
)  # fmt: skip
"""The probes by name, causes before what they cause: a rate that is too high saturates gates, which kill gradients."""


@dataclass(frozen=True)
class Finding:
    """One measurement, held against its threshold."""

    probe: str
    """One of CAUSES."""
    level: Level
    value: float
    threshold: float
    verdict: str
    """What was seen, in words, with its numbers."""
    advice: str = ""
    """What to try; empty where there is nothing to mend."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "probe": self.probe,
            "level": self.level.name.lower(),
            "value": self.value,
            "threshold": self.threshold,
            "verdict": self.verdict,
            "advice": self.advice,
        }


@dataclass(frozen=True)
class Seen:
    """What a probe returns."""

    finding: Finding
    numbers: dict[str, Any] = field(default_factory=dict)
    """Lists, numbers and strings only: as JSON can hold them."""


def worst_first(findings: list[Finding]) -> list[Finding]:
    """By level; of one level, causes before what they cause."""
    return sorted(findings, key=lambda f: (-f.level, CAUSES.index(f.probe)))
