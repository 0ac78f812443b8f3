"""What a model sees of a series: values scaled by the part before the first forecast, and what is known ahead.

Nothing that is forecast is known before its time: means and deviations are those of the first n rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recur.errors import TextError
from recur.series.table import SeriesTable
from recur.text.arrays import Floats


@dataclass(frozen=True)
class Scale:
    """Per series: (f(y) − mean) / deviation, f the identity or the logarithm."""

    mean: Floats
    deviation: Floats
    log: bool

    @staticmethod
    def of(table: SeriesTable, n: int, transform: str) -> Scale:
        log = transform == "log"
        if log and not (table.values > 0).all():
            row, column = np.argwhere(table.values <= 0)[0]
            where = f"{table.name}: row {row + 1}: {table.targets[column]} is {table.values[row, column]:g}"
            raise TextError(f"{where}, which has no logarithm; leave --transform log away")
        values = np.log(table.values[:n]) if log else table.values[:n]
        spread = values.std(0)
        return Scale(values.mean(0), np.where(spread > 0, spread, 1.0), log)

    def forward(self, values: Floats) -> Floats:
        return ((np.log(values) if self.log else values) - self.mean) / self.deviation

    def back(self, scaled: Floats) -> Floats:
        """Of (…, series)."""
        values = scaled * self.deviation + self.mean
        return np.exp(values) if self.log else values


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


def known_ahead(table: SeriesTable, n: int, season: int, more: int = 0, clock: Clock | None = None) -> Floats:
    """(T + more, C): covariates scaled by their first n rows, the season's phase, and the time, if there is a clock;
    zeros for covariates beyond the last row."""
    known = table.known
    spread = known[:n].std(0)
    known = (known - known[:n].mean(0)) / np.where(spread > 0, spread, 1.0)
    length = len(table) + more
    known = np.concatenate([known, np.zeros((max(length - len(known), 0), known.shape[1]))])[:length]
    columns = [known]
    if season > 1:
        angle = 2 * np.pi * (table.start % season + np.arange(length)) / season
        columns += [np.sin(angle), np.cos(angle)]
    if clock is not None:
        columns.append(clock.read(table.start, length))
    return np.column_stack(columns)
