"""Events of one turn of the engine, and batches in which a failing row fails alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from recur.errors import RecurError, RunError
from recur.serve.rows import Column, End, Event, Row, Said

log = logging.getLogger("recur.serve")
Events = list[tuple[Row | Column, Event]]
Unit = TypeVar("Unit")
Made = TypeVar("Made")


class TurnEvents:
    """Events that one turn reports, and the rows and columns that end with it."""

    def __init__(self) -> None:
        self.events: Events = []
        self.ended: set[Row | Column] = set()
        self._logged = False

    def say(self, row: Row, event: Event) -> None:
        self.events.append((row, event))

    def end(self, row: Row | Column, end: End | Said) -> None:
        self.events.append((row, end))
        self.ended.add(row)

    def fail(self, row: Row | Column, error: Exception) -> None:
        """End a row with an error; an unexpected one is logged once per turn, and its text stays on the server."""
        if not isinstance(error, RecurError):
            if not self._logged:
                log.error("a row of %s failed", row.served.name, exc_info=error)
                self._logged = True
            error = RunError("the model failed; the server's log says why")
        if row not in self.ended:
            self.end(row, End("failed", error=error))


def isolated(
    work: Callable[[Sequence[Unit]], Made], units: Sequence[Unit], fail: Callable[[Unit, Exception], None]
) -> list[tuple[Sequence[Unit], Made]]:
    """Call `work` on all units at once; after an error, on each half, down to the units that fail by themselves.

    `work` must change nothing when it raises. Of n units, b of which fail, it is called O(b log n) times.

    Returns groups of units in their order, each with its result; units that failed are in none of them.
    """
    if not units:
        return []
    try:
        return [(units, work(units))]
    except Exception as error:
        if len(units) == 1:
            fail(units[0], error)
            return []
    middle = len(units) // 2
    return isolated(work, units[:middle], fail) + isolated(work, units[middle:], fail)
