"""Types of option fields: ranges of numbers, texts with a format, and search spaces."""

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


def _at_least(low: int) -> Range:
    return Range(Message("be a whole number ≥ {low}", low=low), low)


def _at_most(most: str, high: float) -> Range:
    """Return the range up to `high`, which messages write as `most`."""
    return Range(Message("be at most {most}", most=most), -math.inf, high)


_COUNTABLE, _WIDTH, _LAYERS = _at_most("2³¹ − 1", 2**31 - 1), _at_most("2⁵³", 2**53), _at_most("1000", 1000)
Count = Annotated[int, _at_least(1), _COUNTABLE]
Natural = Annotated[int, _at_least(0), _COUNTABLE]
Width = Annotated[int, _at_least(1), _WIDTH]
WidthOrNone = Annotated[int, _at_least(0), _WIDTH]
Batch = Annotated[int, _at_least(1), _at_most("1,000,000", 1_000_000)]
Layers = Annotated[int, _at_least(1), _LAYERS]
LayersOrNone = Annotated[int, _at_least(0), _LAYERS]
Threads = Annotated[int, _at_least(0), _at_most("1024", 1024)]
Length = Annotated[int, _at_least(1), _at_most("100,000", 100_000)]
Integer = Annotated[int, Range(Message("be a whole number in {range}", range="± 2⁵³"), -(2**53), 2**53)]
_FLOAT32 = _at_most("1e30", 1e30)
Positive = Annotated[
    float,
    Range(Message("be above {low}", low=0), 0, low_excluded=True),
    Range(Message("be at least {least}", least="1e-30"), 1e-30, math.inf),
    _FLOAT32,
]
NonNegative = Annotated[float, Range(Message("not be negative"), 0), _FLOAT32]
Seed = Annotated[int, Range(Message("be a whole number in {range}", range="0 … 2⁶³ − 1"), 0, 2**63 - 1)]
Fraction = Annotated[float, Range(Message("lie in {range}", range="0 … 1"), 0, 1)]
BelowOne = Annotated[
    float, Range(Message("lie in {range}, and below {high}", range="0 … 1", high=1), 0, 1, high_excluded=True)
]


def check_device(name: object) -> None:
    """Raise OptionError for a device that recur does not run on; torch itself accepts more names."""
    if not isinstance(name, str) or not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", name):
        raise OptionError(Message("device must be auto, cpu, cuda or cuda:N, got {value}", value=shown(name)))


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
