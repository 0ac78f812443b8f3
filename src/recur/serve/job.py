"""Rows of one request in the engine: submitted, awaited, and cancelled when their client disconnects.

The engine runs in a thread of its own and reports each row's events to a sink in the event loop's thread. A stream
whose client reads slowly must not fill the memory: after `unread` events the job pauses its rows, and the engine skips
paused rows until the events were taken (back-pressure).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from anyio import CancelScope

from recur.serve.engine import Engine
from recur.serve.http.responses import BusyError
from recur.serve.models import ServedModel
from recur.serve.rows import BatchRow, RowEnd, RowEvent, RowEvents

log = logging.getLogger("recur.serve")
EVENTS_PER_TURN = 64
"""Events handled before other requests run."""
NumberedEvent = tuple[int, RowEvent]
"""Number of a row in its job, and an event of that row."""


class RequestJob:
    """Rows of one request.

    unread: number of events after which the rows are paused until the events were taken; None for no limit.
    collect_errors: return errors of rows as events, because each row is a separate item; else raise the first one.
    """

    def __init__(self, engine: Engine, unread: int | None = None, collect_errors: bool = False) -> None:
        self.engine, self.unread, self.collect_errors = engine, unread, collect_errors
        self.rows: list[BatchRow] = []
        self._events: list[NumberedEvent] = []
        self._arrived = asyncio.Event()
        self._left = 0
        self._slots: list[int | None] = []
        """Slots that belong to rows and not to sessions; freed when the row ends."""

    def sink(self) -> Callable[[RowEvent], None]:
        """Return the function that takes the events of the next row."""
        number = len(self._slots)

        def take_event(event: RowEvent) -> None:
            self._events.append((number, event))
            if isinstance(event, RowEnd):
                self._ended(number)
            elif self.unread is not None and len(self._events) > self.unread:
                for row in self.rows:
                    row.paused = True
            self._arrived.set()

        return take_event

    def add(self, row: BatchRow, owned: bool = False) -> None:
        self.rows.append(row)
        self._slots.append(row.slot if owned else None)

    def take_slot(self, served: ServedModel) -> int:
        """Return a slot for a row that belongs to no session."""
        slot = served.pool.take()
        if slot is None:
            raise BusyError("too many prompts are in progress; try again in a moment")
        return slot

    def begin(self) -> None:
        self._left = len(self.rows)
        self.engine.submit(self.rows)

    def give_up(self) -> None:
        """Free the slots of rows that were never submitted."""
        for number in range(len(self.rows)):
            self._free(number)

    def _ended(self, number: int) -> None:
        self._left -= 1
        self._free(number)

    def _free(self, number: int) -> None:
        slot = self._slots[number]
        if slot is not None:
            self.rows[number].served.pool.give(slot)
            self._slots[number] = None

    @property
    def ended(self) -> bool:
        return self._left == 0

    @property
    def pending(self) -> bool:
        """Whether there are events that were not taken."""
        return bool(self._events)

    def cancel(self) -> None:
        for row in self.rows:
            row.cancelled = True
        self.engine.wake()

    async def take(self) -> list[NumberedEvent]:
        """Wait for events; return those since the last call."""
        await self._arrived.wait()
        self._arrived.clear()
        events, self._events = self._events, []
        if self.unread is not None and any(row.paused for row in self.rows):
            for row in self.rows:
                row.paused = False
            self.engine.wake()
        for _, event in events:
            if isinstance(event, RowEnd) and event.error is not None and not self.collect_errors:
                raise event.error
        return events

    async def run(self, handle: Callable[[int, RowEvent], object]) -> None:
        """Call `handle` with each row's number and event, until all rows have ended."""
        try:
            while not self.ended or self._events:
                for k, (number, event) in enumerate(await self.take()):
                    handle(number, event)
                    if k % EVENTS_PER_TURN == EVENTS_PER_TURN - 1:
                        await asyncio.sleep(0)
        except BaseException:
            self.cancel()
            with CancelScope(shield=True):  # the slots and the session are in use until the engine drops the rows
                await self.until_ended()
            raise

    async def collect(self) -> list[list[RowEvent]]:
        """Return all events of each row, once all rows have ended."""
        events: list[list[RowEvent]] = [[] for _ in self.rows]
        await self.run(lambda number, event: events[number].append(event))
        return events

    async def until_ended(self) -> None:
        """Wait until the engine has dropped cancelled rows; their slots and sessions are free then."""
        while not self.ended:
            await asyncio.shield(self._arrived.wait())
            self._arrived.clear()


def deliver_to(loop: asyncio.AbstractEventLoop) -> Callable[[RowEvents], None]:
    """Return a function that passes events from the engine's thread to the rows' sinks in the loop's thread."""

    def hand_out(events: RowEvents) -> None:
        for row, event in events:
            try:
                row.sink(event)
            except Exception:  # an error of one request; the others must get their events
                log.exception("an event of %s was not delivered", row.served.name)

    def deliver(events: RowEvents) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(hand_out, events)

    return deliver
