"""Registry of what all requests share: models, engine, sessions and limits.

The registry starts and stops with the server. Stopping drains: nothing new is admitted, running requests finish within
`Limits.grace` seconds, then sessions are written to disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from anyio import CapacityLimiter, move_on_after, to_thread
from starlette.requests import Request

from recur.errors import RecurError
from recur.serve.engine import Engine
from recur.serve.http.requests import run_while_connected
from recur.serve.http.responses import BusyError
from recur.serve.job import deliver_to
from recur.serve.models import ModelVersions
from recur.serve.responses import RateError
from recur.serve.schemas import Limits
from recur.serve.sessions import SessionManager
from recur.serve.state_codec import SessionStore, StateSigner

SWEEP = 2.0
"""Seconds between two checks for idle sessions and for newer weights on disk."""
WINDOW = 10.0
"""Seconds over which the request rate is averaged."""
PREDICTIONS = 2
"""Requests for predictions that run at once."""

log = logging.getLogger("recur.serve")
Result = TypeVar("Result")


class Registry:
    """Models, engine, sessions and limits of one server."""

    def __init__(self, models: ModelVersions, limits: Limits, spill: Path | None = None, threads: int = 0) -> None:
        self.models, self.limits = models, limits
        self.threads = threads or max(1, (os.cpu_count() or 1) - 1)  # one core is left to the event loop
        self.store = None if spill is None else SessionStore(spill)
        self.seal = StateSigner() if spill is None else StateSigner.from_folder(spill)
        self.requests: Counter[tuple[str, int]] = Counter()
        """Number of answered requests by route and status."""
        self.in_flight = 0
        self.values = 0
        """Number of values of responses that are held in memory; see Limits."""
        self.draining = False
        """Whether the server is stopping: running requests may finish, new ones are refused."""
        self.begun = time.time()
        self._times: dict[str, deque[float]] = {}
        self._told: dict[str, str] = {}
        """Last error of each run that could not be reloaded."""
        self._tasks: set[asyncio.Task[None]] = set()

    # Start and stop -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the engine; called in the event loop of the server."""
        self.predicting = CapacityLimiter(PREDICTIONS)
        self.stopped = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.engine = Engine(deliver_to(self.loop), self.threads)
        self.sessions = SessionManager(self.models, self.engine, self.limits, self.seal, self.store)
        self.engine.start()
        self.spawn(self._sweep())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait for running requests, at most the grace period; then write sessions to disk."""
        self.draining = True
        self.stopped.set()
        end = time.monotonic() + self.limits.grace
        while self.in_flight and time.monotonic() < end:
            await asyncio.sleep(0.02)
        lost = await self.sessions.leave(max(5.0, end - time.monotonic()))
        if lost and self.store is not None:
            log.error("%d sessions were not written to disk", lost)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await to_thread.run_sync(self.engine.stop)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            try:
                await self.sessions.sweep()
            except Exception:
                log.exception("the check for idle sessions failed")

    # Newer weights ------------------------------------------------------------------------------------------------

    async def reload(self) -> list[str]:
        """Load models whose files have changed; return the names of the replaced models."""
        before = {name: versions[0] for name, versions in self.models.versions.items()}
        for name in before:
            await self._renew(name)
        return [name for name, old in before.items() if self.models.get(name) is not old]

    async def _renew(self, name: str) -> bool:
        """Load the model of a run if its files have changed; return False if that failed."""
        try:
            newer = await to_thread.run_sync(self.models.newer, name)
        except (RecurError, OSError) as error:
            if self._told.get(name) != str(error):  # --watch tries again soon
                log.error("%s was not reloaded: %s", name, error)
            self._told[name] = str(error)
            return False
        self._told.pop(name, None)
        if newer is not None:
            self.models.replace(newer)
        return True

    async def watch(self) -> None:
        """Reload a run when its manifest changes; retry while that fails, because the run may be half written."""
        seen = self._manifests()
        while True:
            await asyncio.sleep(SWEEP)
            now = await to_thread.run_sync(self._manifests)
            for name in now:
                if now[name] != seen.get(name) and await self._renew(name):
                    seen[name] = now[name]

    def _manifests(self) -> dict[str, int]:
        found = {}
        for name, path in self.models.paths.items():
            with suppress(OSError):
                found[name] = (path / "manifest.json").stat().st_mtime_ns
        return found

    # Requests -----------------------------------------------------------------------------------------------------

    def admit(self, owner: str) -> None:
        """Refuse a request above the rate limit or above the number of requests at once."""
        if self.draining:
            raise BusyError("the server is stopping")
        if self.in_flight >= self.limits.requests:
            raise BusyError(f"{self.limits.requests:,} requests are in progress already; try again in a moment")
        if not self.limits.rate:
            return
        times, now = self._times.setdefault(owner, deque()), time.monotonic()
        while times and times[0] < now - WINDOW:
            times.popleft()
        if len(times) >= self.limits.rate * WINDOW:
            raise RateError(f"more than {self.limits.rate:g} requests a second; try again in a moment")
        times.append(now)

    def reserve(self, values: int) -> None:
        """Reserve memory for a response that is held until it is complete, or refuse it.

        Reserved before the work starts: several large responses that each fit would not fit together.
        """
        if self.values + values > self.limits.values_at_once:
            raise BusyError("too many large responses are in progress; try again in a moment, or use stream")
        self.values += values

    def release(self, values: int) -> None:
        self.values -= values

    async def while_connected(self, request: Request, work: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of `work`; cancel it when its client disconnects or the time limit is reached."""
        with move_on_after(self.limits.seconds):
            return await run_while_connected(request.receive, work)
        raise BusyError(f"the request took more than {self.limits.seconds:g} seconds")
