"""How many steps a season has: what dates suggest, if the values agree."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median

import numpy as np

from recur.series.table import Floats

HOUR, DAY = 3600.0, 86400.0

SEASONS = (
    (0.9 * 60, 1.1 * 60, 60),  # minutes: an hour
    (0.9 * 900, 1.1 * 900, 96),  # quarters of an hour: a day
    (0.9 * 1800, 1.1 * 1800, 48),
    (0.9 * HOUR, 1.1 * HOUR, 24),
    (0.9 * DAY, 1.1 * DAY, 7),
    (27 * DAY, 32 * DAY, 12),
    (88 * DAY, 93 * DAY, 4),
)
"""Seconds between two dates, from and to, and the steps of the season that such series usually have."""

WHOLE_SEASONS = 3
"""A season of which the series has fewer is not taken."""


def guess_season(dates: Sequence[str], values: Floats) -> int:
    """Of a table (T, series); 1 where there are no dates, none that can be read, too few values to see a season, or
    where their changes do not repeat after one."""
    times = [time for date in dates[:200] if (time := _parsed(date)) is not None]
    if len(times) < 3 or len(times) < min(len(dates), 200):
        return 1
    step = median((b - a).total_seconds() for a, b in pairwise(times))
    season = next((steps for low, high, steps in SEASONS if low <= step <= high), 1)
    return season if season * WHOLE_SEASONS <= len(values) and repeats_after(season, values) else 1


def repeats_after(season: int, values: Floats) -> bool:
    """Whether the changes from step to step correlate with those a season before: more than by chance, and more than
    with those beside them. Of several series, in the mean."""
    changes = np.diff(values, axis=0)
    changes = changes - changes.mean(0)
    power = np.maximum((changes**2).sum(0), 1e-300)

    def correlation(lag: int) -> float:
        return float(((changes[lag:] * changes[:-lag]).sum(0) / power).mean())

    here, *beside = (correlation(lag) for lag in (season, season - 1, season + 1))
    by_chance = 2 / len(changes) ** 0.5
    return bool(here > max(by_chance, *beside))


def _parsed(date: str) -> datetime | None:
    for form in (date, f"{date}-01"):  # a month by itself is read as its first day
        try:
            return datetime.fromisoformat(form)
        except ValueError:
            continue
    return None
