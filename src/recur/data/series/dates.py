"""Dates, their frequency, calendar features and the time feature.

A date is an integer, or a time in microseconds since 1970. The frequency of a set of date columns is the largest step
that divides all differences: a number of steps, months, business days or microseconds. Missing dates are gaps; if more
dates are missing than a few times those present, the dates are rejected as irregular.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np

from recur.data.csv_files import EPOCH, DateFormat
from recur.data.text.stream import Floats, Ids
from recur.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor

SECOND = 1_000_000
MINUTE, HOUR, DAY, WEEK = 60 * SECOND, 3600 * SECOND, 86400 * SECOND, 7 * 86400 * SECOND
MONDAY = 4 * DAY
"""First Monday of 1970, from which weeks are counted."""

MAX_GAP_RATIO = 4
"""A series may have this many times its rows in steps, plus 100."""

Unit = Literal["steps", "months", "business days", "microseconds"]


@dataclass(frozen=True)
class Frequency:
    """Step between one row and the next."""

    unit: Unit
    count: int
    form: DateFormat = "date"
    """How dates are written."""

    @property
    def dated(self) -> bool:
        """Whether positions are times."""
        return self.unit != "steps"

    @property
    def name(self) -> str:
        """Name in words, such as hours, 15 minutes or quarters."""
        spans = {"microseconds": _SPANS, "months": _MONTHS}.get(self.unit, ((1, self.unit),))
        size, word = next((size, word) for size, word in spans if self.count % size == 0)
        return word if self.count == size else f"{self.count // size:,} {word}"

    @property
    def seasons(self) -> tuple[int, ...]:
        """Usual season lengths in steps, shortest first."""
        if self.unit == "months":
            return (12 // self.count,) if self.count < 12 and 12 % self.count == 0 else ()
        if self.unit == "business days":
            return (5, 261)
        if self.unit == "steps":
            return ()
        if self.count == WEEK:
            return (52,)
        even = [period for period in (MINUTE, HOUR, DAY, WEEK) if period % self.count == 0]
        # Five quarters of an hour are no season, and neither are two half days.
        found = [period // self.count for period in even if period // self.count >= (7 if period >= DAY else 12)]
        return (*found, 365) if self.count == DAY else tuple(found)

    def step(self, place: int) -> int:
        """Return the number of steps from a fixed origin, so that files agree on the phase of a season."""
        if self.unit == "months":
            return int(_month(np.array([place]))[0]) // self.count
        if self.unit == "business days":
            return int(_busday(np.array([place]))[0]) // self.count
        return round(place / self.count) if self.unit == "steps" else (place - MONDAY) // self.count

    def steps(self, places: Ids) -> Ids:
        """Return the number of steps from the first position to each position, which must be on the grid."""
        if self.unit == "months":
            places = _month(places)
        if self.unit == "business days":
            places = _busday(places)
        behind: Ids = places - places[0]
        return behind // self.count

    def places(self, first: int, length: int, begin: int = 0) -> Ids:
        """Return positions (length,), starting `begin` steps after `first`."""
        steps = np.arange(begin, begin + length, dtype=np.int64) * self.count
        if self.unit == "months":
            return _months_on(first, steps)
        if self.unit == "business days":
            days = np.busday_offset(np.datetime64(first // DAY, "D"), steps, roll="forward")
            return days.astype(np.int64) * DAY + first % DAY
        return first + steps

    def written(self, place: int) -> str:
        """Return a position as its file would write it."""
        if self.form == "number":
            return str(place)
        try:
            when = EPOCH + timedelta(microseconds=int(place))
        except OverflowError:  # beyond the year 9999
            return str(np.datetime64(int(place), "us"))
        forms = {"month": when.strftime("%Y-%m"), "date": str(when.date()), "time": str(when)}
        return forms[self.form]


_SPANS = (
    *((WEEK, "weeks"), (DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"), (SECOND, "seconds")),
    (1, "microseconds"),
)
_MONTHS = ((12, "years"), (3, "quarters"), (1, "months"))


def infer_frequency(columns: Sequence[Ids], form: DateFormat) -> Frequency:
    """Return the largest common step of columns of increasing positions."""
    if form == "number":
        return Frequency("steps", _common([np.diff(column) for column in columns]), form)
    if form == "month" or all(map(_same_day, columns)):
        months = [np.diff(_month(column)) for column in columns]
        if form == "month" or any(map(len, months)):
            return Frequency("months", _common(months), form)
    apart = [np.diff(column) for column in columns]
    step = _common(apart, DAY)
    if step == DAY and _without_weekends(columns):
        return Frequency("business days", 1, form)
    return Frequency("microseconds", step, form)


def too_sparse(steps: Ids) -> bool:
    """Return True if so many dates are missing that the rows are not a regular series."""
    return bool(len(steps) and steps[-1] >= MAX_GAP_RATIO * len(steps) + 100)


def _common(apart: Sequence[Ids], otherwise: int = 1) -> int:
    """Return the greatest common divisor of all differences."""
    every = np.concatenate([np.unique(part) for part in apart]) if apart else np.zeros(0, np.int64)
    return int(np.gcd.reduce(every)) or otherwise if len(every) else otherwise


def _same_day(places: Ids) -> bool:
    """Return True if all dates are at the same time of a month, or at its end, with at most one per month."""
    if len(places) < 2:
        return True
    months, days = _month(places), places // DAY
    if not (np.diff(months) > 0).all() or len(np.unique(places % DAY)) > 1:
        return False
    from_begin, from_end = days - _month_begin(months), _month_begin(months + 1) - days
    return len(np.unique(from_begin)) == 1 or bool((from_end == 1).all())


def _without_weekends(columns: Sequence[Ids]) -> bool:
    """Return True if the days leave out weekends, and span at least one."""
    days = [column // DAY for column in columns]
    weekday = all(((day + 3) % 7 < 5).all() for day in days)  # 1970 began on a Thursday
    return weekday and any(len(day) > 4 and day[-1] - day[0] >= 7 for day in days)


def _month(places: Ids) -> Ids:
    """Return months since 1970."""
    return places.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def _month_begin(months: Ids) -> Ids:
    """Return days since 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _busday(places: Ids) -> Ids:
    days = (places // DAY).astype("datetime64[D]")
    return np.busday_count(np.datetime64("1970-01-05"), days)


def _months_on(first: int, months: Ids) -> Ids:
    """Return the same day of later months.

    The last day is used if a month has no such day, or if the first date is the last day of its month.
    """
    month, day = _month(np.array([first]))[0], first // DAY
    into, last = day - _month_begin(month[None])[0], day + 1 == _month_begin(month[None] + 1)[0]
    begin, end = _month_begin(month + months), _month_begin(month + months + 1)
    days = end - 1 if last and into > 26 else np.minimum(begin + into, end - 1)
    return days * DAY + first % DAY


class CalendarCycle(NamedTuple):
    """Calendar quantity that repeats, such as the hour of the day."""

    name: str
    period: int
    """Number of values."""
    shortest: int
    """Largest step between rows, in microseconds, for which the quantity varies."""
    least: int
    """Smallest such step: for rows one second apart, the day of the month carries no information."""
    read: Callable[[Ids], Ids]
    """Function from microseconds since 1970 to 0 … period − 1."""


def _of(unit: str, within: str) -> Callable[[Ids], Ids]:
    """Return a function that counts units since the start of the larger unit."""

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
    CalendarCycle("second of minute", 60, MINUTE // 2, 0, lambda places: places // SECOND % 60),
    CalendarCycle("minute of hour", 60, HOUR // 2, 0, lambda places: places // MINUTE % 60),
    CalendarCycle("hour of day", 24, DAY // 2, 0, lambda places: places // HOUR % 24),
    CalendarCycle("day of week", 7, DAY, 0, lambda places: (places - MONDAY) // DAY % 7),
    CalendarCycle("day of month", 31, WEEK, MINUTE, _of("D", "M")),
    CalendarCycle("week of year", 53, WEEK, HOUR, _week_of_year),
    CalendarCycle("month", 12, 6 * MONTH, DAY, _of("M", "Y")),
)


def _cycles(frequency: Frequency) -> list[CalendarCycle]:
    if not frequency.dated:
        return []
    length = {"months": MONTH, "business days": DAY}.get(frequency.unit, 1) * frequency.count
    return [cycle for cycle in CYCLES if cycle.least <= length <= cycle.shortest]


def calendar_names(frequency: Frequency, form: str = "scaled") -> tuple[str, ...]:
    """Return the names of the columns of `calendar_features`."""
    parts = ("",) if form == "scaled" else (" sin", " cos")
    return tuple(cycle.name + part for cycle in _cycles(frequency) for part in parts)


def calendar_features(places: Ids, frequency: Frequency, form: str = "scaled") -> Floats:
    """Return calendar features (T, K) of positions (T,) in microseconds since 1970.

    form   scaled: one column per cycle in −0.5 … 0.5; circle: sine and cosine of each cycle
    """
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


ArrayT = TypeVar("ArrayT", Floats, "Tensor")


def compress_time(u: ArrayT, log: Callable[[ArrayT], ArrayT]) -> ArrayT:
    """Map scaled time u ≥ 0 to 2 u − 1 for u ≤ 1, and to 2 (1 + ln u) − 1 beyond.

    The training range 0 … 1 becomes −1 … 1; later times grow only logarithmically, so that the input stays bounded.
    `log` is the logarithm of the array library: np.log or torch.log.
    """
    result: ArrayT = 2 * (u.clip(max=1) + log(u.clip(min=1))) - 1
    return result


class TimeFeature(NamedTuple):
    """Time as a covariate that is known ahead: −1 … 1 over the training range, growing logarithmically beyond it."""

    origin: int
    """Step of the first training row. Files with dates agree on the number of a step."""
    scale: float
    """Number of steps that are mapped to −1 … 1."""

    def read(self, start: int, length: int) -> Floats:
        """Return the feature for `length` steps from step `start`, shape (length,)."""
        return compress_time((start - self.origin + np.arange(length)) / self.scale, np.log)
