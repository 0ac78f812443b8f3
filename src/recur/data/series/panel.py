"""Several series: of unequal length, with gaps, with what is known beside them.

A `Series` has one variable or several, which may serve as inputs to each other. NaN stands where nothing was observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from recur.data.series.calendar import calendar_features, calendar_names
from recur.data.series.dates import Frequency
from recur.data.text.arrays import Floats, Ids, Mask


@dataclass(frozen=True)
class Series:
    """One of a panel: T steps of C targets."""

    id: str
    values: Floats
    """(T, C): NaN where nothing was observed."""
    future: Floats
    """(T + ahead, F): covariates that are known ahead."""
    past: Floats
    """(T, P): covariates that are known until now."""
    static: Floats
    """(n,): numbers, and categories as their places in the panel's list of them."""
    start: int = 0
    """How many steps the first row lies behind a fixed one: series agree on the phase of a season."""
    first: int = 0
    """The date of the first row, as a place of dates.py."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def observed(self) -> Mask:
        """(T, C)"""
        return ~np.isnan(self.values)

    @property
    def ahead(self) -> int:
        """Rows behind the last value, for which covariates are known."""
        return len(self.future) - len(self.values)

    def until(self, n: int) -> Series:
        """The first n values; what is known ahead stays known."""
        return replace(self, values=self.values[:n], past=self.past[:n])


@dataclass(frozen=True)
class Panel:
    name: str
    series: tuple[Series, ...]
    targets: tuple[str, ...]
    """The names of columns, here and below."""
    future: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of static columns that hold words."""
    frequency: Frequency | None = None
    """None without dates."""

    def __len__(self) -> int:
        return len(self.series)

    @property
    def lengths(self) -> Ids:
        return np.array([len(one) for one in self.series])

    def univariate(self) -> Panel:
        """Each target as a series of its own."""
        if len(self.targets) == 1:
            return self
        alone = len(self.series) == 1
        found = [
            replace(one, id=name if alone else f"{one.id}/{name}", values=one.values[:, k : k + 1])
            for one in self.series
            for k, name in enumerate(self.targets)
        ]
        return replace(self, series=tuple(found), targets=("value",))

    def without(self, targets: int) -> Panel:
        """All series without so many values at their end, for what may not see them."""
        return replace(self, series=tuple(one.until(max(len(one) - targets, 0)) for one in self.series))

    # Dates ----------------------------------------------------------------------------------------------

    def dates(self, series: Series, begin: int = 0, length: int | None = None) -> tuple[str, ...]:
        """As the file would write them; beyond its last row too. Nothing without dates."""
        if self.frequency is None:
            return ()
        length = len(series) - begin if length is None else length
        return tuple(map(self.frequency.written, self.frequency.places(series.first, length, begin)))

    def calendar(self, series: Series, length: int, form: str = "scaled") -> Floats:
        """(length, K): hour, day of the week and so on from the first row on, as far as one likes."""
        if self.frequency is None or not self.frequency.dated:
            return np.zeros((length, 0))
        return calendar_features(self.frequency.places(series.first, length), self.frequency, form)

    def calendar_names(self, form: str = "scaled") -> tuple[str, ...]:
        return () if self.frequency is None else calendar_names(self.frequency, form)
