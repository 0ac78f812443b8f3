"""What a field of options takes, beside a plain type: ranges of numbers, and texts of some form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from recur.errors import OptionError, shown
from recur.i18n import Message


@dataclass(frozen=True)
class Range:
    """The numbers that a field takes, and how a message says so."""

    words: str
    low: float
    high: float = math.inf
    low_excluded: bool = False
    high_excluded: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.low_excluded else value >= self.low
        below = value < self.high if self.high_excluded or math.isinf(self.high) else value <= self.high
        return above and below


@dataclass(frozen=True)
class Form:
    """What a text is read by, which raises an OptionError for one that it cannot read."""

    parse: Callable[[str], object]


_COUNTABLE = Range(Message("be at most {most}", most="2³¹ − 1"), -math.inf, 2**31 - 1)
Count = Annotated[int, Range(Message("be a whole number ≥ {low}", low=1), 1), _COUNTABLE]
Natural = Annotated[int, Range(Message("be a whole number ≥ {low}", low=0), 0), _COUNTABLE]
Width = Annotated[
    int,
    Range(Message("be a whole number ≥ {low}", low=1), 1),
    Range(Message("be at most {most}", most="2⁵³"), -math.inf, 2**53),
]
WidthOrNone = Annotated[
    int,
    Range(Message("be a whole number ≥ {low}", low=0), 0),
    Range(Message("be at most {most}", most="2⁵³"), -math.inf, 2**53),
]
Batch = Annotated[
    int,
    Range(Message("be a whole number ≥ {low}", low=1), 1),
    Range(Message("be at most {most}", most="1,000,000"), -math.inf, 1_000_000),
]
Layers = Annotated[
    int,
    Range(Message("be a whole number ≥ {low}", low=1), 1),
    Range(Message("be at most {most}", most="1000"), -math.inf, 1000),
]
NoLayers = Annotated[
    int,
    Range(Message("be a whole number ≥ {low}", low=0), 0),
    Range(Message("be at most {most}", most="1000"), -math.inf, 1000),
]
Threads = Annotated[
    int,
    Range(Message("be a whole number ≥ {low}", low=0), 0),
    Range(Message("be at most {most}", most="1024"), -math.inf, 1024),
]
Length = Annotated[
    int,
    Range(Message("be a whole number ≥ {low}", low=1), 1),
    Range(Message("be at most {most}", most="100,000"), -math.inf, 100_000),
]
Whole = Annotated[int, Range(Message("be a whole number in {range}", range="± 2⁵³"), -(2**53), 2**53)]
_FLOAT32 = Range(Message("be at most {most}", most="1e30"), -math.inf, 1e30)
Positive = Annotated[
    float,
    Range(Message("be above {low}", low=0), 0, low_excluded=True),
    Range(Message("be at least {least}", least="1e-30"), 1e-30, math.inf),
    _FLOAT32,
]
NonNegative = Annotated[float, Range(Message("not be negative"), 0), _FLOAT32]
Seed = Annotated[int, Range(Message("be a whole number in {range}", range="0 … 2⁶³ − 1"), 0, 2**63 - 1)]
Share = Annotated[float, Range(Message("lie in {range}", range="0 … 1"), 0, 1)]
BelowOne = Annotated[
    float, Range(Message("lie in {range}, and below {high}", range="0 … 1", high=1), 0, 1, high_excluded=True)
]


def check_device(name: object) -> None:
    """Whether a name can be one of a device: torch itself knows many that nothing here runs on."""
    if not isinstance(name, str) or not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", name):
        raise OptionError(Message("device must be auto, cpu, cuda or cuda:N, got {value}", value=shown(name)))


Device = Annotated[str, Form(check_device)]
