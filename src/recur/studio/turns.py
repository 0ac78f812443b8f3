"""Who runs when: slow work on one run is done one at a time, behind a line that has an end.

Worker threads are few. A run whose views take long holds one of them, however many requests ask for it: they wait in a
line of the run's own, and beyond its end they are sent away (503) to try again. Other runs, the list and text that is
being generated have threads of their own. So have reports, which take longest: they are made of copies of a run's model
(reporting.py), so that views of the same run need not wait behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from anyio import CapacityLimiter, create_task_group, to_thread
from starlette.requests import ClientDisconnect, Request

from recur.errors import RecurError
from recur.i18n import Message
from recur.serve.http.answers import BusyError

SLOW = 3
"""Runs whose slow views are computed at once."""
REPORTS = 2
"""Reports made at once."""
WAITING = 64
"""Requests in the line of one run."""
LISTS, RESTS, LOADS, STEPS = 2, 1, 2, 4
"""Threads for the list of runs and its curves; for the runs that were left out of it at first; for opening runs; for
steps of models."""
STREAMS = 64
"""Texts generated at once."""

Made = TypeVar("Made")


class Line:
    """The requests of one run: one is answered, the others wait."""

    def __init__(self) -> None:
        self.length, self.turn = 0, asyncio.Lock()


class Turns:
    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.loads: dict[str, Line] = {}
        self.reports: dict[str, Line] = {}
        self.streams = 0

    # Made inside the loop that they belong to.

    @cached_property
    def lists(self) -> CapacityLimiter:
        return CapacityLimiter(LISTS)

    @cached_property
    def rests(self) -> CapacityLimiter:
        return CapacityLimiter(RESTS)

    @cached_property
    def loading(self) -> CapacityLimiter:
        return CapacityLimiter(LOADS)

    @cached_property
    def steps(self) -> CapacityLimiter:
        return CapacityLimiter(STEPS)

    @cached_property
    def slow(self) -> CapacityLimiter:
        return CapacityLimiter(SLOW)

    @cached_property
    def reporting(self) -> CapacityLimiter:
        return CapacityLimiter(REPORTS)

    async def list(self, work: Callable[[], Made]) -> Made:
        """Read files, in a thread that models do not hold."""
        return await to_thread.run_sync(work, limiter=self.lists)

    async def rest(self, work: Callable[[], Made]) -> Made:
        """Read the many files that nobody looks at yet, one after the other."""
        return await to_thread.run_sync(work, limiter=self.rests)

    async def step(self, work: Callable[[], Made]) -> Made:
        """One step of a model in memory."""
        return await to_thread.run_sync(work, limiter=self.steps)

    async def load(self, request: Request, name: str, work: Callable[[], Made]) -> Made:
        """Open a run: once for all who ask for it, and not behind its slow views."""
        return await self._queue(self.loads, self.loading, request, name, work)

    async def look(self, request: Request, name: str, work: Callable[[], Made]) -> Made:
        """A slow view of a run."""
        return await self._queue(self.lines, self.slow, request, name, work)

    async def report(self, request: Request, name: str, work: Callable[[], Made]) -> Made:
        """A report of a run: once for all who ask for it, and beside its views."""
        return await self._queue(self.reports, self.reporting, request, name, work)

    async def _queue(
        self, lines: dict[str, Line], threads: CapacityLimiter, request: Request, name: str, work: Callable[[], Made]
    ) -> Made:
        """Work on a run, when it is its turn; given up while it waits, if its client goes."""
        line = lines.setdefault(name, Line())
        if line.length >= WAITING:
            raise BusyError(
                Message("{n} requests wait for {name} already; try again in a moment", n=WAITING, name=name)
            )
        line.length += 1
        made: list[Made] = []
        failed: list[Exception] = []
        try:
            async with create_task_group() as group:

                async def watch() -> None:
                    while (await request.receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(watch)
                async with line.turn:
                    try:
                        made.append(await to_thread.run_sync(work, limiter=threads))
                    except (RecurError, OSError) as error:  # past the group, which would wrap it
                        failed.append(error)
                group.cancel_scope.cancel()
        finally:
            line.length -= 1
            if not line.length:
                lines.pop(name, None)
        if failed:
            raise failed[0]
        if not made:
            raise ClientDisconnect
        return made[0]
