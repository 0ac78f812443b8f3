"""A panel behind another: values that were to be forecast, behind those that were learned from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recur.data.series.panel import Panel
from recur.data.series.reading import stem_of
from recur.errors import TextError, shown


def continued(panel: Panel, more: Panel) -> Panel:
    """The series of a panel with the values of another behind theirs, such as those that were to be forecast; both
    without dates, or the second one's right behind the first one's."""
    by_id = {one.id: one for one in more.series}
    if _is_wide(panel) and _is_wide(more):
        by_id = {panel.series[0].id: more.series[0]}
    if more.targets != panel.targets or more.future != panel.future or more.past != panel.past:
        raise TextError(f"{more.name} has other columns than {panel.name}, whose series it is to continue")
    found = []
    for one in panel.series:
        if one.id not in by_id:
            raise TextError(f"{more.name} does not have the series {shown(one.id)} of {panel.name}")
        rest = by_id[one.id]
        if panel.frequency and rest.first != panel.frequency.places(one.first, 1, len(one))[0]:
            raise TextError(f"{more.name}: series {shown(one.id)} does not begin where {panel.name} ends")
        values, past = np.concatenate([one.values, rest.values]), np.concatenate([one.past, rest.past])
        future = np.concatenate([one.future[: len(one)], rest.future])
        found.append(replace(one, values=values, past=past, future=future))
    return replace(panel, series=tuple(found))


def _is_wide(panel: Panel) -> bool:
    """One series that has no name but its file's."""
    return len(panel) == 1 and panel.series[0].id == stem_of(panel.name)
