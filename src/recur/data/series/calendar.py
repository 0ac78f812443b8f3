"""What dates tell by themselves: the hour, the day of the week, the month, as far as they vary from row to row.

scaled    −0.5 … 0.5 over the period, a column each
circle    sin and cos of the angle, so that midnight lies beside eleven at night
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from recur.data.series.dates import DAY, HOUR, MINUTE, MONDAY, SECOND, WEEK, Frequency
from recur.data.text.arrays import Floats, Ids
from recur.errors import OptionError


class Cycle(NamedTuple):
    name: str
    period: int
    """How many values it has."""
    shortest: int
    """It varies in series whose rows are this many microseconds apart at most …"""
    least: int
    """… and at least: the second of a minute tells nothing that the minute does not, for rows an hour apart."""
    read: Callable[[Ids], Ids]
    """From microseconds since 1970 to 0 … period − 1."""


def _of(unit: str, within: str) -> Callable[[Ids], Ids]:
    """Units since the larger one began."""

    def read(places: Ids) -> Ids:
        times = places.astype("datetime64[us]")
        begin = times.astype(f"datetime64[{within}]")
        return times.astype(f"datetime64[{unit}]").astype(np.int64) - begin.astype(f"datetime64[{unit}]").astype(
            np.int64
        )

    return read


def _week_of_year(places: Ids) -> Ids:
    return np.minimum(_of("D", "Y")(places) // 7, 52)


MONTH = 31 * DAY

CYCLES = (
    Cycle("second of minute", 60, MINUTE // 2, 0, lambda places: places // SECOND % 60),
    Cycle("minute of hour", 60, HOUR // 2, 0, lambda places: places // MINUTE % 60),
    Cycle("hour of day", 24, DAY // 2, 0, lambda places: places // HOUR % 24),
    Cycle("day of week", 7, DAY, 0, lambda places: (places - MONDAY) // DAY % 7),
    Cycle("day of month", 31, WEEK, MINUTE, _of("D", "M")),
    Cycle("week of year", 53, WEEK, HOUR, _week_of_year),
    Cycle("month", 12, 6 * MONTH, DAY, _of("M", "Y")),
)


def _cycles(frequency: Frequency) -> list[Cycle]:
    if not frequency.dated:
        return []
    length = {"months": MONTH, "business days": DAY}.get(frequency.unit, 1) * frequency.count
    return [cycle for cycle in CYCLES if cycle.least <= length <= cycle.shortest]


def calendar_names(frequency: Frequency, form: str = "scaled") -> tuple[str, ...]:
    """Of the columns of `calendar_features`."""
    parts = ("",) if form == "scaled" else (" sin", " cos")
    return tuple(cycle.name + part for cycle in _cycles(frequency) for part in parts)


def calendar_features(places: Ids, frequency: Frequency, form: str = "scaled") -> Floats:
    """(T, K) of places (T,) in microseconds since 1970."""
    if form not in ("scaled", "circle"):
        raise OptionError(f"calendar features are scaled or circle, got {form!r}")
    columns: list[Floats] = []
    for cycle in _cycles(frequency):
        phase = cycle.read(places) / cycle.period
        if form == "scaled":
            columns.append(phase * cycle.period / (cycle.period - 1) - 0.5)
        else:
            columns += [np.sin(2 * np.pi * phase), np.cos(2 * np.pi * phase)]
    return np.stack(columns, axis=1) if columns else np.zeros((len(places), 0))
