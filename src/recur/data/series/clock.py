"""The time itself, as what is known ahead."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recur.data.text.arrays import Floats


class Clock(NamedTuple):
    """The time as what is known ahead: −1 … 1 over the steps that were learned from, beyond them ever more slowly more.

    t = steps behind the origin, u = t / scale up to 1 and 1 + ln(t / scale) beyond; 2 u − 1 is what is known
    """

    origin: int
    """The step of the first row that was learned from; files with dates agree on where a step lies."""
    scale: float

    def read(self, start: int, length: int) -> Floats:
        """(length,): from step `start` on."""
        u = (start - self.origin + np.arange(length)) / self.scale
        return 2 * np.where(u <= 1, u, 1 + np.log(np.maximum(u, 1))) - 1
