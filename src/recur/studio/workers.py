"""Worker threads of the studio, with one bounded queue of slow requests per run.

Worker threads are few. A run whose views are slow uses one thread, however many requests it gets: they wait in the
run's own queue, and are refused with 503 when it is full. Other runs, the list of runs, and text generation have
threads of their own. So have reports, which take longest: they use copies of the model (reports.py), so that views of
the same run do not wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import cached_property
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from recur.errors import RecurError
from recur.i18n import Message
from recur.serve.http import BusyError, run_while_connected

SLOW = 3
"""Runs whose slow views are computed at once."""
REPORTS = 2
"""Reports made at once."""
WAITING = 64
"""Requests in the queue of one run."""
LISTS, RESTS, LOADS, STEPS = 2, 1, 2, 4
"""Threads for the list of runs and its curves; for the runs that were left out of it at first; for opening runs; for
steps of models."""
STREAMS = 64
"""Texts generated at once."""

Result = TypeVar("Result")


class RequestQueue:
    """Queue of the requests of one run: one runs, the others wait."""

    def __init__(self) -> None:
        self.length, self.turn = 0, asyncio.Lock()


class WorkerPool:
    """Thread limits by kind of work, and the queues of runs."""

    def __init__(self) -> None:
        self.lines: dict[str, RequestQueue] = {}
        self.loads: dict[str, RequestQueue] = {}
        self.reports: dict[str, RequestQueue] = {}
        self.streams = 0

    # Created on first use: a CapacityLimiter belongs to the event loop that is running then.

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

    async def list(self, work: Callable[[], Result]) -> Result:
        """Read files, in a thread that models do not hold."""
        return await to_thread.run_sync(work, limiter=self.lists)

    async def rest(self, work: Callable[[], Result]) -> Result:
        """Read the remaining runs of the list in the background, one after the other."""
        return await to_thread.run_sync(work, limiter=self.rests)

    async def step(self, work: Callable[[], Result]) -> Result:
        """One step of a model in memory."""
        return await to_thread.run_sync(work, limiter=self.steps)

    async def load(self, request: Request, name: str, work: Callable[[], Result]) -> Result:
        """Load a run: once for all requests, and not behind its slow views."""
        return await self._queue(self.loads, self.loading, request, name, work)

    async def look(self, request: Request, name: str, work: Callable[[], Result]) -> Result:
        """Run a slow view."""
        return await self._queue(self.lines, self.slow, request, name, work)

    async def report(self, request: Request, name: str, work: Callable[[], Result]) -> Result:
        """Run a report: once for all requests, and not behind the views of its run."""
        return await self._queue(self.reports, self.reporting, request, name, work)

    async def _queue(
        self,
        queues: dict[str, RequestQueue],
        threads: CapacityLimiter,
        request: Request,
        name: str,
        work: Callable[[], Result],
    ) -> Result:
        """Run `work` when the requests before it are done; give up if the client disconnects while it waits."""
        queue = queues.setdefault(name, RequestQueue())
        if queue.length >= WAITING:
            raise BusyError(
                Message("{n} requests wait for {name} already; try again in a moment", n=WAITING, name=name)
            )
        queue.length += 1

        async def run() -> Result:
            async with queue.turn:
                return await to_thread.run_sync(work, limiter=threads)

        try:
            return await run_while_connected(request.receive, run)
        finally:
            queue.length -= 1
            if not queue.length:
                queues.pop(name, None)


TextPieces = Generator[str, None, None]


class TextStream(Response):
    """Generated text as a streaming response.

    The next piece is generated when the last one was sent (back-pressure), and none after the client disconnects. An
    error truncates the response without its last chunk, which a client can tell from a complete one.
    """

    media_type = "text/plain"

    def __init__(self, first: str, rest: TextPieces, workers: WorkerPool) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.first, self.rest, self.workers = first, rest, workers

    @classmethod
    async def begin(cls, pieces: TextPieces, workers: WorkerPool) -> TextStream:
        """Generate the first piece before the response starts, so that an early error gets an error status."""
        if workers.streams >= STREAMS:
            raise BusyError(Message("{n} texts are being generated already; try again in a moment", n=STREAMS))
        return cls(await workers.step(lambda: next(pieces, "")), pieces, workers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.workers.streams += 1
        try:
            await run_while_connected(receive, lambda: self._write(send))
        except ClientDisconnect:
            pass
        finally:
            self.workers.streams -= 1
            self.rest.close()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        piece: str | None = self.first
        while piece is not None:
            if piece:
                body = piece.encode("utf-8", "replace")
                await send({"type": "http.response.body", "body": body, "more_body": True})
            try:
                piece = await self.workers.step(lambda: next(self.rest, None))
            except RecurError:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
