"""The rows of one request in the engine: begun, listened to, and called off when nobody listens any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from recur.serve.engine import Engine, Events
from recur.serve.models import Served
from recur.serve.rows import End, Event, Row
from recur.web.answers import BusyError

Named = tuple[int, Event]
"""What a row said, and which one it is."""


class Work:
    """`unread`: events after which rows are passed over until they were taken; None if all are wanted at the end."""

    def __init__(self, engine: Engine, unread: int | None = None) -> None:
        self.engine, self.unread = engine, unread
        self.rows: list[Row] = []
        self._events: list[Named] = []
        self._come = asyncio.Event()
        self._left = 0
        self._slots: list[int | None] = []
        """Slots that are theirs alone, and free once they have ended."""

    def sink(self) -> Callable[[Event], None]:
        """For the next row."""
        number = len(self._slots)

        def say(event: Event) -> None:
            self._events.append((number, event))
            if isinstance(event, End):
                self._ended(number)
            elif self.unread is not None and len(self._events) > self.unread:
                for row in self.rows:
                    row.paused = True
            self._come.set()

        return say

    def add(self, row: Row, owned: bool = False) -> None:
        self.rows.append(row)
        self._slots.append(row.slot if owned else None)

    def take_slot(self, served: Served) -> int:
        """One for a row that belongs to no session."""
        slot = served.bank.take()
        if slot is None:
            raise BusyError("too many prompts are under way; try again in a moment")
        return slot

    def begin(self) -> None:
        self._left = len(self.rows)
        self.engine.submit(self.rows)

    def give_up(self) -> None:
        """Of rows that were never begun: give their slots back."""
        for number in range(len(self.rows)):
            self._free(number)

    def _ended(self, number: int) -> None:
        self._left -= 1
        self._free(number)

    def _free(self, number: int) -> None:
        slot = self._slots[number]
        if slot is not None:
            self.rows[number].served.bank.give(slot)
            self._slots[number] = None

    @property
    def ended(self) -> bool:
        return self._left == 0

    @property
    def pending(self) -> bool:
        """Whether something has come that was not taken."""
        return bool(self._events)

    def cancel(self) -> None:
        for row in self.rows:
            row.cancelled = True
        self.engine.wake()

    async def take(self) -> list[Named]:
        """What has come since, once something has."""
        await self._come.wait()
        self._come.clear()
        events, self._events = self._events, []
        if self.unread is not None and any(row.paused for row in self.rows):
            for row in self.rows:
                row.paused = False
            self.engine.wake()
        for _, event in events:
            if isinstance(event, End) and event.error is not None:
                raise event.error
        return events

    async def whole(self) -> list[list[Event]]:
        """All that each row said, once all have ended."""
        said: list[list[Event]] = [[] for _ in self.rows]
        try:
            while not self.ended or self._events:
                for number, event in await self.take():
                    said[number].append(event)
        except BaseException:
            self.cancel()
            await self.until_ended()
            raise
        return said

    async def until_ended(self) -> None:
        """Wait for the engine to let go of rows that were cancelled: their slots, and their sessions, are free then."""
        while not self.ended:
            await asyncio.shield(self._come.wait())
            self._come.clear()


def deliver_to(loop: asyncio.AbstractEventLoop) -> Callable[[Events], None]:
    """What hands a batch's news from the engine's thread to the sinks of its rows, in the thread of the loop."""

    def hand_out(news: Events) -> None:
        for row, event in news:
            row.sink(event)

    def deliver(news: Events) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(hand_out, news)

    return deliver
