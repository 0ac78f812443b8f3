"""Engine: one thread that advances all rows together, one batch per model and turn (continuous batching).

One thread owns all states, so that no lock is needed around them: other threads submit rows, or functions to run
between two batches, through a queue. A long prompt is read in chunks, so that other rows wait for milliseconds. A row
whose client does not read its events is paused. A row that fails ends alone: its batch is repeated without it
(rows.run_isolated).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from anyio import CancelScope
from torch import Tensor

from recur.serve.http import BusyError
from recur.serve.models import ServedModel
from recur.serve.rows import BatchEvents, BatchRow, GenerationRow, RowEnd, RowEvent, RowEvents, StepBatch, run_isolated
from recur.serve.sampling import EngineCounters, EventBuilder
from recur.serve.state_pool import LanguageNetwork

if TYPE_CHECKING:
    from recur.serve.models import ServedModel

SCAN_TOKENS = 512
"""Inputs read in one turn by all rows that have more than one."""
MIN_SCAN = 16
"""Inputs that each of these rows may read at least; fewer rows read more each."""
Deliver = Callable[[RowEvents], None]
Result = TypeVar("Result")
Unit = TypeVar("Unit", BatchRow, StepBatch)


class Engine:
    """Thread that steps rows. `deliver` is called in this thread, once per turn, with the events of all rows."""

    def __init__(self, deliver: Deliver, threads: int = 1) -> None:
        self.deliver, self.threads = deliver, threads
        self.counts = EngineCounters()
        self.builder = EventBuilder(self.counts)
        self._inbox: deque[Sequence[BatchRow] | StepBatch | Callable[[], None]] = deque()
        self._awake = threading.Condition()
        self._woken = self._stopping = False
        self._rows: list[BatchRow] = []
        self._thread = threading.Thread(target=self._run, name="recur-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self.wake()
        self._thread.join(10)

    @property
    def active(self) -> int:
        return len(self._rows)

    # Called from any thread ---------------------------------------------------------------------------------------

    def submit(self, rows: Sequence[BatchRow] | StepBatch) -> None:
        self._inbox.append(rows)
        self.wake()

    def call(self, work: Callable[[], Result]) -> Future[Result]:
        """Run `work` between two batches, in the thread that owns the states."""
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

        self._inbox.append(run)
        self.wake()
        return future

    def wake(self) -> None:
        with self._awake:
            self._woken = True
            self._awake.notify()

    # The engine's thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        torch.set_num_threads(self.threads)
        torch.set_grad_enabled(False)  # this thread only
        while not self._stopping:
            if not self.turn():
                with self._awake:
                    if not self._woken:
                        self._awake.wait()
                    self._woken = False

    def turn(self) -> bool:
        """Accept submitted rows and advance every row that can; return True if there was work."""
        events, columns = BatchEvents(), list[StepBatch]()
        while self._inbox:
            work = self._inbox.popleft()
            if isinstance(work, StepBatch):
                columns += self._checked([work], events)
            elif callable(work):
                work()
            else:
                for row in self._checked(work, events):
                    self._begin(row, events)
        for row in self._rows:
            if row.cancelled:
                row.reason = "cancelled"
                self.builder.end(row, events)
        able = [row for row in self._rows if not (row.paused or row.cancelled)]
        models: dict[ServedModel, tuple[list[BatchRow], list[StepBatch]]] = {}
        for row in able:
            models.setdefault(row.served, ([], []))[0].append(row)
        for column in columns:
            models.setdefault(column.served, ([], []))[1].append(column)
        for served, waiting in models.items():
            try:
                self._advance(served, *waiting, events)
            except Exception as error:  # the sessions of the other models continue
                failed: list[BatchRow | StepBatch] = [*waiting[0], *waiting[1]]
                for each in failed:
                    events.fail(each, error)
        if events.ended:
            self._rows = [row for row in self._rows if row not in events.ended]
        if events.events:
            self.deliver(events.events)
        return bool(able) or bool(self._inbox)

    def _checked(self, units: Sequence[Unit], events: BatchEvents) -> list[Unit]:
        """Return the units whose inputs their network can read.

        A token out of range would fail the whole batch; on a GPU it would end the process's CUDA context.
        """
        checked = []
        for unit in units:
            try:
                unit.served.network.check(unit.inputs)
                checked.append(unit)
            except Exception as error:
                events.fail(unit, error)
        return checked

    def _begin(self, row: BatchRow, events: BatchEvents) -> None:
        try:
            if row.fresh or row.start is not None:
                row.served.pool.set_state(row.slot, row.start)
                row.start = None
        except Exception as error:
            events.fail(row, error)
            return
        if row.left or (isinstance(row, GenerationRow) and row.writes):
            self._rows.append(row)
        else:
            self.builder.end(row, events)

    def _advance(
        self, served: ServedModel, rows: list[BatchRow], columns: list[StepBatch], events: BatchEvents
    ) -> None:
        """Advance a model's rows by one batch."""
        begun = time.perf_counter()
        scans = isinstance(served.network, LanguageNetwork)
        reading = [row for row in rows if row.left > 1] if scans else []
        stepping = [row for row in rows if row.left == 1] if scans else [row for row in rows if row.left]
        waiting = [row for row in rows if not row.left]
        count = self._step(served, [*stepping, *columns], events)
        size = count + len(waiting) + len(reading)
        for some, scores in run_isolated(
            lambda some: served.pool.last_scores([r.slot for r in some]), waiting, events.fail
        ):
            self.builder.settle(some, scores, events)
        if reading:
            count += self._scan(reading, events)
        self.counts.read[served.name] = self.counts.read.get(served.name, 0) + count
        self.counts.batch(size, time.perf_counter() - begun)

    def _step(self, served: ServedModel, units: Sequence[BatchRow | StepBatch], events: BatchEvents) -> int:
        """Step rows by their next input, and columns; return the number of inputs."""

        def step(units: Sequence[BatchRow | StepBatch]) -> Tensor:
            slots, inputs = list[int](), list[Any]()
            for unit in units:
                if isinstance(unit, StepBatch):
                    slots += unit.slots
                    inputs += unit.inputs
                else:
                    slots.append(unit.slot)
                    inputs.append(unit.inputs[unit.at])
            return served.pool.step(slots, inputs)

        count = 0
        for some, scores in run_isolated(step, units, events.fail):
            count += len(scores)
            rows = [unit for unit in some if isinstance(unit, BatchRow)]
            columns = [unit for unit in some if isinstance(unit, StepBatch)]
            if columns:
                self.builder.report_batch(columns, scores[len(rows) :], events)
            for k, row in enumerate(rows):
                if row.every and isinstance(row, GenerationRow):
                    self.builder.report_inputs(row, scores[k : k + 1], row.inputs[row.at : row.at + 1], events)
                row.at += 1
            if rows:
                self.builder.settle(rows, scores[: len(rows)], events)
        return count

    def _scan(self, rows: list[BatchRow], events: BatchEvents) -> int:
        """Read the next chunk of these rows' inputs; return the number of inputs."""
        rows = rows[: SCAN_TOKENS // MIN_SCAN]  # the other rows follow in the next turn
        served, each, count = rows[0].served, SCAN_TOKENS // len(rows), 0
        network = served.network
        assert isinstance(network, LanguageNetwork)

        def scan(some: Sequence[BatchRow]) -> tuple[Tensor, Tensor]:
            return served.pool.scan([row.slot for row in some], [row.inputs[row.at : row.at + each] for row in some])

        for some, (outputs, lengths) in run_isolated(scan, rows, events.fail):
            for k, row in enumerate(some):
                given = row.inputs[row.at : row.at + each]
                if row.every:
                    self.builder.report_inputs(row, network.scores(outputs[k, : len(given)]), given, events)
                row.at += len(given)
            last = outputs[torch.arange(len(some), device=outputs.device), lengths.to(outputs.device) - 1]
            self.builder.settle(some, network.scores(last), events)
            count += int(lengths.sum())
        self._rows.sort(key=set(rows).__contains__)  # round robin: rows that were read go to the end
        return count


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
                self._left -= 1
                self._free(number)
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
