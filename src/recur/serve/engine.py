"""The thread that steps: all rows that wait advance together, one batch a model, over and over.

A row that reads much reads it in pieces, so that the others wait for milliseconds and not for a book. A row whose
client does not keep up is passed over until it has. A row that fails ends alone: its batch is repeated without it
(recur.serve.isolation).
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

from recur.serve.counts import Counts
from recur.serve.isolation import Events, TurnEvents, isolated
from recur.serve.network import LanguageNetwork
from recur.serve.outputs import Outputs
from recur.serve.rows import Column, Row, TextRow

if TYPE_CHECKING:
    from recur.serve.models import Served

AT_ONCE = 512
"""Inputs that are read in one turn, by all rows that read more than one."""
SHORTEST = 16
"""Of which a row may read so many, if it has them: the fewer rows, the more each."""
Deliver = Callable[[Events], None]
Made = TypeVar("Made")
Work = TypeVar("Work", Row, Column)


class Engine:
    """`deliver` is called in the engine's thread, once a batch, with all that rows have to report."""

    def __init__(self, deliver: Deliver, threads: int = 1) -> None:
        self.deliver, self.threads = deliver, threads
        self.counts = Counts()
        self.outputs = Outputs(self.counts)
        self._inbox: deque[Sequence[Row] | Column | Callable[[], None]] = deque()
        self._awake = threading.Condition()
        self._woken = self._stopping = False
        self._rows: list[Row] = []
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

    def submit(self, rows: Sequence[Row] | Column) -> None:
        self._inbox.append(rows)
        self.wake()

    def call(self, work: Callable[[], Made]) -> Future[Made]:
        """Have work done between two batches, by the thread that owns the states."""
        future: Future[Made] = Future()

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
        news, columns = TurnEvents(), list[Column]()
        while self._inbox:
            work = self._inbox.popleft()
            if isinstance(work, Column):
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
        models: dict[Served, tuple[list[Row], list[Column]]] = {}
        for row in able:
            models.setdefault(row.served, ([], []))[0].append(row)
        for column in columns:
            models.setdefault(column.served, ([], []))[1].append(column)
        for served, waiting in models.items():
            try:
                self._advance(served, *waiting, news)
            except Exception as error:  # whatever it is, the other models' sessions go on
                failed: list[Row | Column] = [*waiting[0], *waiting[1]]
                for each in failed:
                    news.fail(each, error)
        if news.ended:
            self._rows = [row for row in self._rows if row not in news.ended]
        if news.events:
            self.deliver(news.events)
        return bool(able) or bool(self._inbox)

    def _checked(self, units: Sequence[Work], news: TurnEvents) -> list[Work]:
        """Units whose inputs their network can read; a token out of range would fail a whole batch, or the GPU."""
        return [unit for some, _ in isolated(_check_inputs, units, news.fail) for unit in some]

    def _begin(self, row: Row, news: TurnEvents) -> None:
        try:
            if row.fresh or row.start is not None:
                row.served.bank.set_state(row.slot, row.start)
                row.start = None
        except Exception as error:
            news.fail(row, error)
            return
        if row.left or (isinstance(row, TextRow) and row.writes):
            self._rows.append(row)
        else:
            self.outputs.end(row, news)

    def _advance(self, served: Served, rows: list[Row], columns: list[Column], news: TurnEvents) -> None:
        """Advance a model's rows by one batch."""
        begun = time.perf_counter()
        scans = isinstance(served.network, LanguageNetwork)
        reading = [row for row in rows if row.left > 1] if scans else []
        stepping = [row for row in rows if row.left == 1] if scans else [row for row in rows if row.left]
        waiting = [row for row in rows if not row.left]
        count = self._step(served, [*stepping, *columns], news)
        size = count + len(waiting) + len(reading)
        for some, scores in isolated(lambda some: served.bank.last_scores([r.slot for r in some]), waiting, news.fail):
            self.outputs.settle(some, scores, news)
        if reading:
            count += self._scan(reading, news)
        self.counts.read[served.name] = self.counts.read.get(served.name, 0) + count
        self.counts.batch(size, time.perf_counter() - begun)

    def _step(self, served: Served, units: Sequence[Row | Column], news: TurnEvents) -> int:
        """Step rows by their next input, and columns; return the number of inputs."""

        def step(units: Sequence[Row | Column]) -> Tensor:
            slots, inputs = list[int](), list[Any]()
            for unit in units:
                if isinstance(unit, Column):
                    slots += unit.slots
                    inputs += unit.inputs
                else:
                    slots.append(unit.slot)
                    inputs.append(unit.inputs[unit.at])
            return served.bank.step(slots, inputs)

        count = 0
        for some, scores in isolated(step, units, news.fail):
            count += len(scores)
            rows = [unit for unit in some if isinstance(unit, Row)]
            columns = [unit for unit in some if isinstance(unit, Column)]
            if columns:
                self.outputs.answer(columns, scores[len(rows) :], news)
            for k, row in enumerate(rows):
                if row.every and isinstance(row, TextRow):
                    self.outputs.along(row, scores[k : k + 1], row.inputs[row.at : row.at + 1], news)
                row.at += 1
            if rows:
                self.outputs.settle(rows, scores[: len(rows)], news)
        return count

    def _scan(self, rows: list[Row], news: TurnEvents) -> int:
        """Read a piece of what these rows have to read; how many inputs that were."""
        rows = rows[: AT_ONCE // SHORTEST]  # the others in the next turn
        served, each, count = rows[0].served, AT_ONCE // len(rows), 0
        network = served.network
        assert isinstance(network, LanguageNetwork)

        def scan(some: Sequence[Row]) -> tuple[Tensor, Tensor]:
            return served.bank.scan([row.slot for row in some], [row.inputs[row.at : row.at + each] for row in some])

        for some, (outputs, lengths) in isolated(scan, rows, news.fail):
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


def _check_inputs(units: Sequence[Row | Column]) -> None:
    for unit in units:
        unit.served.network.check(unit.inputs)
