"""Where good values of an option lie: what a sweep draws from."""

from __future__ import annotations

import math
from dataclasses import dataclass

Value = str | bool | int | float


@dataclass(frozen=True)
class Between:
    """Numbers from low to high, both included: whole ones, if these are; evenly by their logarithm, if asked for."""

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
            raise ValueError(f"a range rises, and above 0 where it is by logarithm; got {self}")


@dataclass(frozen=True)
class OneOf:
    """One of these values."""

    values: tuple[Value, ...]

    def __contains__(self, value: object) -> bool:
        return value in self.values


Search = Between | OneOf
