"""The thread that steps: all rows that wait advance together, one batch a model, over and over.

A row that reads much reads it in pieces, so that the others wait for milliseconds and not for a book. A row whose
client does not keep up is passed over until it has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from recur.errors import RecurError, RunError
from recur.serve.counts import Counts
from recur.serve.drawing import draw_tokens, drawn, likeliest, readings
from recur.serve.network import LanguageNetwork
from recur.serve.rows import Column, End, Event, Judged, Piece, Row, Said, StepRow, TextRow
from recur.serve.text import Token

if TYPE_CHECKING:
    from recur.serve.models import Served

AT_ONCE = 512
"""Inputs that are read in one turn, by all rows that read more than one."""
SHORTEST = 16
"""Of which a row may read so many, if it has them: the fewer rows, the more each."""
FAILED = "the model's output is not a number: its weights are too large, or damaged"

log = logging.getLogger("recur.serve")
Events = list[tuple[Row | Column, Event]]
Deliver = Callable[[Events], None]
Made = TypeVar("Made")


class Engine:
    """`deliver` is called in the engine's thread, once a batch, with all that rows have to report."""

    def __init__(self, deliver: Deliver, threads: int = 1) -> None:
        self.deliver, self.threads = deliver, threads
        self.counts = Counts()
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
        news, columns = News(), list[Column]()
        while self._inbox:
            work = self._inbox.popleft()
            if isinstance(work, Column):
                columns.append(work)
            elif callable(work):
                work()
            else:
                for row in work:
                    self._begin(row, news)
        for row in self._rows:
            if row.cancelled:
                row.reason = "cancelled"
                news.end(row, self._ending(row))
        able = [row for row in self._rows if not (row.paused or row.cancelled)]
        models: dict[Served, tuple[list[Row], list[Column]]] = {}
        for row in able:
            models.setdefault(row.served, ([], []))[0].append(row)
        for column in columns:
            models.setdefault(column.served, ([], []))[1].append(column)
        for served, waiting in models.items():
            self._advance(served, *waiting, news)
        if news.ended:
            self._rows = [row for row in self._rows if row not in news.ended]
        if news.events:
            self.deliver(news.events)
        return bool(able) or bool(self._inbox)

    def _begin(self, row: Row, news: News) -> None:
        if row.fresh or row.start is not None:
            row.served.bank.set_state(row.slot, row.start)
            row.start = None
        if row.left or (isinstance(row, TextRow) and row.writes):
            self._rows.append(row)
        else:
            news.end(row, self._ending(row))

    def _advance(self, served: Served, rows: list[Row], columns: list[Column], news: News) -> None:
        """One batch of a model's rows."""
        begun = time.perf_counter()
        try:
            scans = isinstance(served.network, LanguageNetwork)
            reading = [row for row in rows if row.left > 1] if scans else []
            stepping = [row for row in rows if row.left == 1] if scans else [row for row in rows if row.left]
            waiting = [row for row in rows if not row.left]
            slots = [row.slot for row in stepping]
            inputs = [row.inputs[row.at] for row in stepping]
            for column in columns:
                slots += column.slots
                inputs += column.inputs
            count = size = len(slots)
            if slots:
                scores = served.bank.step(slots, inputs)
            if columns:
                self._answer(columns, scores[len(stepping) :], news)
                scores = scores[: len(stepping)]
            if stepping:
                for k, row in enumerate(stepping):
                    if row.every and isinstance(row, TextRow):
                        self._judge(row, scores[k : k + 1], row.inputs[row.at : row.at + 1], news)
                    row.at += 1
                self._settle(stepping, scores, news)
            if waiting:
                self._settle(waiting, served.bank.last_scores([row.slot for row in waiting]), news)
            if reading:
                count += self._scan(reading, news)
                size += len(reading)
        except Exception as error:  # whatever it is, the other models' sessions go on
            if not isinstance(error, RecurError):
                log.exception("a batch of %s failed", served.name)
                error = RunError("the model failed; the server's log says why")
            failed: list[Row | Column] = [*rows, *columns]
            for each in failed:
                if each not in news.ended:
                    news.end(each, End("failed", error=error))
            return
        self.counts.read[served.name] = self.counts.read.get(served.name, 0) + count
        self.counts.batch(size + len(waiting), time.perf_counter() - begun)

    def _answer(self, columns: list[Column], scores: Tensor, news: News) -> None:
        labels, shares = drawn([column for column in columns for _ in column.slots], scores)
        at = 0
        for column in columns:
            end = at + len(column.slots)
            news.end(column, Said(labels[at:end], shares[at:end]))
            at = end

    def _scan(self, rows: list[Row], news: News) -> int:
        """Read a piece of what these rows have to read; how many inputs that were."""
        rows = rows[: AT_ONCE // SHORTEST]  # the others in the next turn
        served, each = rows[0].served, AT_ONCE // len(rows)
        network = served.network
        assert isinstance(network, LanguageNetwork)
        given = [row.inputs[row.at : row.at + each] for row in rows]
        outputs, lengths = served.bank.scan([row.slot for row in rows], given)
        for k, row in enumerate(rows):
            if row.every:
                scores = network.scores(outputs[k, : lengths[k]])
                if isinstance(row, TextRow):
                    self._judge(row, scores, given[k], news)
                elif isinstance(row, StepRow):
                    row.readings += readings([row] * (len(scores) - 1), scores[:-1])
            row.at += len(given[k])
        last = outputs[torch.arange(len(rows), device=outputs.device), lengths.to(outputs.device) - 1]
        self._settle(rows, network.scores(last), news)
        self._rows.sort(key=set(rows).__contains__)  # whoever was served stands behind the others
        return int(lengths.sum())

    def _judge(self, row: TextRow, scores: Tensor, given: Sequence[int], news: News) -> None:
        """How likely the tokens were that a row has just read; scores (T, K) are those behind each."""
        logp = scores.double().log_softmax(-1)
        known, judged = (logp, given[1:]) if row.before is None else (torch.cat([row.before[None], logp]), given)
        row.before = logp[-1]
        if len(judged):
            texts = row.served.token_texts
            found = likeliest(known[: len(judged)], judged, row.logprobs or 0, texts)
            news.say(row, Judged([Token(k, texts[k], 0, *each) for k, each in zip(judged, found, strict=True)]))

    def _settle(self, rows: list[Row], scores: Tensor, news: News) -> None:
        """Rows that have read an input, and the scores (n, K) behind it: say what was seen, write, or end."""
        finite = scores.isfinite().all(-1)
        if not bool(finite.all()):
            for row in (rows[k] for k in (~finite).nonzero()[:, 0].tolist()):
                news.end(row, End("failed", error=RunError(FAILED)))
            kept = finite.nonzero()[:, 0].tolist()
            rows, scores = [rows[k] for k in kept], scores[kept]
        saying = {k: row for k, row in enumerate(rows) if isinstance(row, StepRow) and (row.every or not row.left)}
        if saying:
            steps = list(saying.values())
            for row, reading in zip(steps, readings(steps, _these(scores, list(saying))), strict=True):
                row.readings.append(reading)
        writing = {k: row for k, row in enumerate(rows) if isinstance(row, TextRow) and row.writes and not row.left}
        for k, row in enumerate(rows):
            if not row.left and k not in writing:
                news.end(row, self._ending(row))
        if writing:
            self._write(list(writing.values()), _these(scores, list(writing)), news)

    def _write(self, rows: list[TextRow], scores: Tensor, news: News) -> None:
        """One token each, drawn from the scores."""
        served = rows[0].served
        texts = served.token_texts
        tokens = draw_tokens(rows, served.writable(scores))
        asked = [k for k, row in enumerate(rows) if row.logprobs is not None]
        known: dict[int, tuple[float, dict[str, float] | None]] = {}
        if asked:
            logp = scores[asked].double().log_softmax(-1)
            top = max(rows[k].logprobs or 0 for k in asked)
            known = dict(zip(asked, likeliest(logp, [tokens[k] for k in asked], top, texts), strict=True))
        self.counts.written[served.name] = self.counts.written.get(served.name, 0) + len(rows)
        for k, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            text, released = row.writing.add(Token(token, texts[token], 0, *known.get(k, (None, None))))
            row.writes -= 1
            row.inputs, row.at, row.every = (token,), 0, False
            if row.writes and not row.writing.stopped:
                news.say(row, Piece(text, released, token))
                continue
            row.reason = "stop" if row.writing.stopped else "length"
            row.writes = 0
            more, rest = row.writing.end()
            news.say(row, Piece(text + more, released + rest, token))
            if not row.stays:
                news.end(row, self._ending(row))  # else once it has read this token too

    def _ending(self, row: Row) -> End:
        state = row.served.bank.state(row.slot) if row.keep else None
        return End(row.reason, state, row.readings if isinstance(row, StepRow) else ())


class News:
    """What one turn has to report."""

    def __init__(self) -> None:
        self.events: Events = []
        self.ended: set[Row | Column] = set()

    def say(self, row: Row, event: Event) -> None:
        self.events.append((row, event))

    def end(self, row: Row | Column, end: End | Said) -> None:
        self.events.append((row, end))
        self.ended.add(row)


def _these(scores: Tensor, which: list[int]) -> Tensor:
    return scores if len(which) == len(scores) else scores[which]
