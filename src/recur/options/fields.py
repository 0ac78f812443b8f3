"""Types of option fields: ranges of numbers, texts with a format, and search spaces."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from recur.errors import OptionError, shown


@dataclass(frozen=True)
class Range:
    """Range of numbers that a field accepts, with its description for messages."""

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
class TextFormat:
    """Format of a text field: a parser that raises OptionError for text that it cannot read."""

    parse: Callable[[str], object]


_COUNTABLE = Range("be at most 2³¹ − 1", -math.inf, 2**31 - 1)
Count = Annotated[int, Range("be a whole number ≥ 1", 1), _COUNTABLE]
Natural = Annotated[int, Range("be a whole number ≥ 0", 0), _COUNTABLE]
Width = Annotated[int, Range("be a whole number ≥ 1", 1), Range("be at most 2⁵³", -math.inf, 2**53)]
WidthOrNone = Annotated[int, Range("be a whole number ≥ 0", 0), Range("be at most 2⁵³", -math.inf, 2**53)]
Batch = Annotated[int, Range("be a whole number ≥ 1", 1), Range("be at most 1,000,000", -math.inf, 1_000_000)]
Layers = Annotated[int, Range("be a whole number ≥ 1", 1), Range("be at most 1000", -math.inf, 1000)]
LayersOrNone = Annotated[int, Range("be a whole number ≥ 0", 0), Range("be at most 1000", -math.inf, 1000)]
Threads = Annotated[int, Range("be a whole number ≥ 0", 0), Range("be at most 1024", -math.inf, 1024)]
Length = Annotated[int, Range("be a whole number ≥ 1", 1), Range("be at most 100,000", -math.inf, 100_000)]
Integer = Annotated[int, Range("be a whole number in ± 2⁵³", -(2**53), 2**53)]
_FLOAT32 = Range("be at most 1e30", -math.inf, 1e30)
Positive = Annotated[
    float, Range("be above 0", 0, low_excluded=True), Range("be at least 1e-30", 1e-30, math.inf), _FLOAT32
]
NonNegative = Annotated[float, Range("not be negative", 0), _FLOAT32]
Seed = Annotated[int, Range("be a whole number in 0 … 2⁶³ − 1", 0, 2**63 - 1)]
Fraction = Annotated[float, Range("lie in 0 … 1", 0, 1)]
BelowOne = Annotated[float, Range("lie in 0 … 1, and below 1", 0, 1, high_excluded=True)]


def check_device(name: object) -> None:
    """Raise OptionError for a device that recur does not run on; torch itself accepts more names."""
    if not isinstance(name, str) or not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", name):
        raise OptionError(f"device must be auto, cpu, cuda or cuda:N, got {shown(name)}")


Device = Annotated[str, TextFormat(check_device)]


Value = str | bool | int | float


@dataclass(frozen=True)
class Between:
    """Search space of numbers from low to high, inclusive: integers if both are; with `log`, on a logarithmic scale."""

    low: float
    high: float
    log: bool = False

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf or (self.log and self.low <= 0):
            raise ValueError(f"a range needs low < high, and low > 0 with log; got {self}")


@dataclass(frozen=True)
class OneOf:
    """Search space of a list of values."""

    values: tuple[Value, ...]

    def __contains__(self, value: object) -> bool:
        return value in self.values


Search = Between | OneOf
