"""What all requests share: models, engine, sessions, limits; begun with the server and ended with it."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request

from recur.errors import RecurError
from recur.serve.engine import Engine
from recur.serve.errors import RateError
from recur.serve.limits import Limits
from recur.serve.models import Models
from recur.serve.sessions import Sessions
from recur.serve.travel import Seal, Store
from recur.serve.work import deliver_to
from recur.web.answers import BusyError

SWEEP = 2.0
"""Seconds between two looks at who is idle, and at what has changed on disk."""
WINDOW = 10.0
"""Seconds over which requests are counted for their rate."""
PREDICTIONS = 2
"""Requests for predictions that are worked on at once; of as many as may wait, see Limits."""

log = logging.getLogger("recur.serve")
Made = TypeVar("Made")


class Hub:
    def __init__(self, models: Models, limits: Limits, spill: Path | None = None, threads: int = 0) -> None:
        self.models, self.limits = models, limits
        self.threads = threads or max(1, (os.cpu_count() or 1) - 1)  # one is for the server itself
        self.store = None if spill is None else Store(spill)
        self.seal = Seal() if spill is None else Seal.kept_in(spill)
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answered so far, by route and status."""
        self.in_flight = 0
        self.draining = False
        """Whether it is about to stop: what runs may end, nothing new begins."""
        self.begun = time.time()
        self._times: dict[str, deque[float]] = {}
        self._told: dict[str, str] = {}
        """Why a run could not be loaded anew, the last time."""
        self._tasks: set[asyncio.Task[None]] = set()

    # Begun and ended ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """In the loop that serves."""
        self.predicting = CapacityLimiter(PREDICTIONS)
        self.stopped = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.engine = Engine(deliver_to(self.loop), self.threads)
        self.sessions = Sessions(self.models, self.engine, self.limits, self.seal, self.store)
        self.engine.start()
        self.spawn(self._sweep())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Let what runs come to its end, as long as there is time; then write sessions to disk."""
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
                log.exception("idle sessions were not looked at")

    # Newer weights ------------------------------------------------------------------------------------------------

    async def reload(self) -> list[str]:
        """Load what has changed, and have it answer from then on; the names of what was replaced."""
        before = {name: versions[0] for name, versions in self.models.versions.items()}
        for name in before:
            await self._renew(name)
        return [name for name, old in before.items() if self.models.get(name) is not old]

    async def _renew(self, name: str) -> bool:
        """Whether a run's model is that of its files now."""
        try:
            newer = await to_thread.run_sync(self.models.newer, name)
        except (RecurError, OSError) as error:
            if self._told.get(name) != str(error):  # --watch tries again soon
                log.error("%s stays as it was: %s", name, error)
            self._told[name] = str(error)
            return False
        self._told.pop(name, None)
        if newer is not None:
            self.models.replace(newer)
        return True

    async def watch(self) -> None:
        """Reload whenever the manifest of a run changes, and again as long as that fails: it may be half written."""
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
        """Refuse a request that comes too soon, or among too many."""
        if self.draining:
            raise BusyError("the server is about to stop")
        if self.in_flight >= self.limits.requests:
            raise BusyError(f"{self.limits.requests:,} requests are under way already; try again in a moment")
        if not self.limits.rate:
            return
        times, now = self._times.setdefault(owner, deque()), time.monotonic()
        while times and times[0] < now - WINDOW:
            times.popleft()
        if len(times) >= self.limits.rate * WINDOW:
            raise RateError(f"more than {self.limits.rate:g} requests a second; try again in a moment")
        times.append(now)

    async def while_connected(self, request: Request, work: Awaitable[Made]) -> Made:
        """What work gives, unless its client goes before, or it takes too long."""

        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone())
        try:
            await asyncio.wait({doing, leaving}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            if leaving.done():
                raise ClientDisconnect
            raise BusyError(f"the request took more than {self.limits.seconds:g} seconds")
        finally:
            leaving.cancel()
            if not doing.done():
                doing.cancel()
                with suppress(asyncio.CancelledError, RecurError):
                    await doing
