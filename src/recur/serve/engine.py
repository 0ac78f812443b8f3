"""The thread that steps: all rows that wait advance together, one batch a model, over and over.

A row that reads much reads it in pieces, so that the others wait for milliseconds and not for a book. A row whose
client does not keep up is passed over until it has. A row that fails ends alone: its batch is repeated without it
(recur.serve.rows).
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
"""Inputs that are read in one turn, by all rows that read more than one."""
MIN_SCAN = 16
"""Of which a row may read so many, if it has them: the fewer rows, the more each."""
Deliver = Callable[[RowEvents], None]
Result = TypeVar("Result")
Unit = TypeVar("Unit", BatchRow, StepBatch)


class Engine:
    """`deliver` is called in the engine's thread, once a batch, with all that rows have to report."""

    def __init__(self, deliver: Deliver, threads: int = 1) -> None:
        self.deliver, self.threads = deliver, threads
        self.counts = EngineCounters()
        self.outputs = EventBuilder(self.counts)
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

    # From any thread ----------------------------------------------------------------------------------------------

    def submit(self, rows: Sequence[BatchRow] | StepBatch) -> None:
        self._inbox.append(rows)
        self.wake()

    def call(self, work: Callable[[], Result]) -> Future[Result]:
        """Have work done between two batches, by the thread that owns the states."""
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

    # The thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        torch.set_num_threads(self.threads)
        torch.set_grad_enabled(False)  # of this thread
        while not self._stopping:
            if not self.turn():
                with self._awake:
                    if not self._woken:
                        self._awake.wait()
                    self._woken = False

    def turn(self) -> bool:
        """Take in what has come, and advance every row that can; whether there was one."""
        news, columns = BatchEvents(), list[StepBatch]()
        while self._inbox:
            work = self._inbox.popleft()
            if isinstance(work, StepBatch):
                columns += self._checked([work], news)
            elif callable(work):
                work()
            else:
                for row in self._checked(work, news):
                    self._begin(row, news)
        for row in self._rows:
            if row.cancelled:
                row.reason = "cancelled"
                self.outputs.end(row, news)
        able = [row for row in self._rows if not (row.paused or row.cancelled)]
        models: dict[ServedModel, tuple[list[BatchRow], list[StepBatch]]] = {}
        for row in able:
            models.setdefault(row.served, ([], []))[0].append(row)
        for column in columns:
            models.setdefault(column.served, ([], []))[1].append(column)
        for served, waiting in models.items():
            try:
                self._advance(served, *waiting, news)
            except Exception as error:  # whatever it is, the other models' sessions go on
                failed: list[BatchRow | StepBatch] = [*waiting[0], *waiting[1]]
                for each in failed:
                    news.fail(each, error)
        if news.ended:
            self._rows = [row for row in self._rows if row not in news.ended]
        if news.events:
            self.deliver(news.events)
        return bool(able) or bool(self._inbox)

    def _checked(self, units: Sequence[Unit], news: BatchEvents) -> list[Unit]:
        """Units whose inputs their network can read; a token out of range would fail a whole batch, or the GPU."""
        return [unit for some, _ in run_isolated(_check_inputs, units, news.fail) for unit in some]

    def _begin(self, row: BatchRow, news: BatchEvents) -> None:
        try:
            if row.fresh or row.start is not None:
                row.served.pool.set_state(row.slot, row.start)
                row.start = None
        except Exception as error:
            news.fail(row, error)
            return
        if row.left or (isinstance(row, GenerationRow) and row.writes):
            self._rows.append(row)
        else:
            self.outputs.end(row, news)

    def _advance(self, served: ServedModel, rows: list[BatchRow], columns: list[StepBatch], news: BatchEvents) -> None:
        """Advance a model's rows by one batch."""
        begun = time.perf_counter()
        scans = isinstance(served.network, LanguageNetwork)
        reading = [row for row in rows if row.left > 1] if scans else []
        stepping = [row for row in rows if row.left == 1] if scans else [row for row in rows if row.left]
        waiting = [row for row in rows if not row.left]
        count = self._step(served, [*stepping, *columns], news)
        size = count + len(waiting) + len(reading)
        for some, scores in run_isolated(
            lambda some: served.pool.last_scores([r.slot for r in some]), waiting, news.fail
        ):
            self.outputs.settle(some, scores, news)
        if reading:
            count += self._scan(reading, news)
        self.counts.read[served.name] = self.counts.read.get(served.name, 0) + count
        self.counts.batch(size, time.perf_counter() - begun)

    def _step(self, served: ServedModel, units: Sequence[BatchRow | StepBatch], news: BatchEvents) -> int:
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
        for some, scores in run_isolated(step, units, news.fail):
            count += len(scores)
            rows = [unit for unit in some if isinstance(unit, BatchRow)]
            columns = [unit for unit in some if isinstance(unit, StepBatch)]
            if columns:
                self.outputs.answer(columns, scores[len(rows) :], news)
            for k, row in enumerate(rows):
                if row.every and isinstance(row, GenerationRow):
                    self.outputs.along(row, scores[k : k + 1], row.inputs[row.at : row.at + 1], news)
                row.at += 1
            if rows:
                self.outputs.settle(rows, scores[: len(rows)], news)
        return count

    def _scan(self, rows: list[BatchRow], news: BatchEvents) -> int:
        """Read a piece of what these rows have to read; how many inputs that were."""
        rows = rows[: SCAN_TOKENS // MIN_SCAN]  # the others in the next turn
        served, each, count = rows[0].served, SCAN_TOKENS // len(rows), 0
        network = served.network
        assert isinstance(network, LanguageNetwork)

        def scan(some: Sequence[BatchRow]) -> tuple[Tensor, Tensor]:
            return served.pool.scan([row.slot for row in some], [row.inputs[row.at : row.at + each] for row in some])

        for some, (outputs, lengths) in run_isolated(scan, rows, news.fail):
            for k, row in enumerate(some):
                given = row.inputs[row.at : row.at + each]
                if row.every:
                    self.outputs.along(row, network.scores(outputs[k, : len(given)]), given, news)
                row.at += len(given)
            last = outputs[torch.arange(len(some), device=outputs.device), lengths.to(outputs.device) - 1]
            self.outputs.settle(some, network.scores(last), news)
            count += int(lengths.sum())
        self._rows.sort(key=set(rows).__contains__)  # whoever was served stands behind the others
        return count


def _check_inputs(units: Sequence[BatchRow | StepBatch]) -> None:
    for unit in units:
        unit.served.network.check(unit.inputs)
