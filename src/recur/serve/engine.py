"""Engine: one thread that advances all rows together, one batch per model and turn (continuous batching).

One thread owns all states, so that no lock is needed around them: other threads submit rows, or functions to run
between two batches, through a queue. A long prompt is read in chunks, so that other rows wait for milliseconds. A row
whose client does not read its events is paused. A row that fails ends alone: its batch is repeated without it
(rows.run_isolated).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from recur.serve.metrics import EngineCounters
from recur.serve.rows import BatchEvents, BatchRow, GenerationRow, RowEvents, StepBatch, run_isolated
from recur.serve.sampling import EventBuilder
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
        return [unit for some, _ in run_isolated(_check_inputs, units, events.fail) for unit in some]

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


def _check_inputs(units: Sequence[BatchRow | StepBatch]) -> None:
    for unit in units:
        unit.served.network.check(unit.inputs)
