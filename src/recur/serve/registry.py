"""Registry of what all requests share, its metrics, and the uvicorn server that starts and stops it.

Stopping drains: nothing new is admitted, running requests finish within `Limits.grace` seconds, then sessions are
written to disk.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
import uvicorn
from anyio import CapacityLimiter, move_on_after, to_thread
from starlette.requests import Request
from starlette.types import ASGIApp
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from recur.errors import RecurError
from recur.serve import server
from recur.serve.engine import Engine, deliver_to
from recur.serve.http import BusyError, RateError, openai_error, run_while_connected
from recur.serve.models import ModelVersions
from recur.serve.schemas import Limits
from recur.serve.server import make_config
from recur.serve.sessions import SessionManager, SessionStore, StateSigner

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render_metrics(registry: Registry) -> str:
    """Return all metrics in the text format of Prometheus."""
    counts, sessions = registry.engine.counts, registry.sessions
    answered = {
        f'{{route="{_escape_label(route)}",status="{status}"}}': n
        for (route, status), n in sorted(registry.requests.items())
    }
    sizes = {f'_bucket{{le="{size}"}}': n for size, n in (counts.sizes | {"+Inf": counts.batches}).items()}
    places = {'{where="memory"}': len(sessions), '{where="disk"}': sessions.stored}
    families = [
        ("requests_total", "counter", "Requests answered, by route and status.", answered),
        ("requests_in_flight", "gauge", "Requests in progress.", registry.in_flight),
        ("tokens_read_total", "counter", "Inputs or tokens read, by model.", _by_model(counts.read)),
        ("tokens_written_total", "counter", "Inputs or tokens written, by model.", _by_model(counts.written)),
        ("rows", "gauge", "Prompts and sessions that are being stepped.", registry.engine.active),
        ("batch_rows", "histogram", "Rows of a batch.", sizes | {"_sum": counts.rows, "_count": counts.batches}),
        ("batch_seconds_total", "counter", "Seconds spent in batches.", counts.seconds),
        ("sessions", "gauge", "Sessions, by where they are.", places),
        ("sessions_expired_total", "counter", "Sessions expired so far.", sessions.expired),
        ("sessions_spilled_total", "counter", "Sessions spilled so far.", sessions.spilled),
        ("sessions_restored_total", "counter", "Sessions restored so far.", sessions.restored),
        ("reloads_total", "counter", "Newer weights loaded.", registry.models.reloads),
        ("uptime_seconds", "gauge", "Since the start.", time.time() - registry.begun),
    ]
    lines = []
    for name, kind, text, values in families:
        lines += [f"# HELP recur_{name} {text}", f"# TYPE recur_{name} {kind}"]
        lines += [f"recur_{name}{k} {n}" for k, n in (values if isinstance(values, dict) else {"": values}).items()]
    return "\n".join([*lines, ""])


def _by_model(counts: Mapping[str, int]) -> dict[str, int]:
    return {f'{{model="{_escape_label(name)}"}}': n for name, n in sorted(dict(counts).items())}


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


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
        trained_with = max((served.predictor.task.options.threads for served in models), default=0)
        most = max(1, (os.cpu_count() or 1) - 1)  # one core is left to the event loop
        self.threads = threads or min(trained_with or most, most)
        torch.set_num_threads(self.threads)  # for predictions, which run in threads of their own
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


PING_SECONDS = 20.0
"""Seconds between two pings of a WebSocket, and for the answer to one."""

ENGINE_SWITCH_INTERVAL = 2e-4
"""Seconds after which a computing thread yields to the other one."""


class ServeConnection(server.Connection):
    """Connection of one client, with errors in OpenAI's form."""

    error_format = staticmethod(openai_error)

    def _should_upgrade(self) -> bool:
        """Return True for a complete opening handshake (RFC 6455, 4.2.1); else the request is plain HTTP."""
        found: dict[bytes, list[bytes]] = {}
        for name, value in self.headers:
            found.setdefault(name, []).append(value)
        try:
            (key,), (version,), (_,) = found[b"sec-websocket-key"], found[b"sec-websocket-version"], found[b"upgrade"]
            whole = version == b"13" and len(base64.b64decode(key, validate=True)) == 16
        except (KeyError, ValueError):
            return False
        plain = self.scope["method"] == "GET" and self.scope["http_version"] == "1.1"
        return whole and plain and super()._should_upgrade()


class ModelServer(uvicorn.Server):
    """uvicorn server that starts and stops its registry.

    SIGTERM and Ctrl-C: new requests are refused, running ones finish, then the server stops. SIGHUP: reload weights.
    """

    def __init__(self, config: uvicorn.Config, registry: Registry, watch: bool = False) -> None:
        super().__init__(config)
        self.registry, self.watch = registry, watch

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # The engine's thread releases the GIL at every PyTorch operation. With the default interval it would wait 5 ms
        # to get the GIL back while the event loop reads a long message.
        sys.setswitchinterval(ENGINE_SWITCH_INTERVAL)
        await self.registry.start()
        with suppress(NotImplementedError, RuntimeError, ValueError, AttributeError):  # Windows; another thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        if self.watch:
            self.registry.spawn(self.registry.watch())
        await super().startup(sockets)

    def _reload(self) -> None:
        async def reload() -> None:
            await self.registry.reload()

        self.registry.spawn(reload())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            # uvicorn re-raises the signals that it has handled. After a graceful shutdown the process must end with 0.
            self._captured_signals = [each for each in self._captured_signals if each != signal.SIGTERM]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in self.servers:
            listening.close()
        await self.registry.drain()
        await super().shutdown(sockets)
        await self.registry.stop()


def make_model_server(
    app: ASGIApp, registry: Registry, host: str = "127.0.0.1", port: int = 0, watch: bool = False
) -> ModelServer:
    config = make_config(app, host, port, ServeConnection)
    config.ws = WebSocketsSansIOProtocol
    config.ws_max_size = registry.limits.body
    config.ws_ping_interval = config.ws_ping_timeout = PING_SECONDS
    config.ws_per_message_deflate = False  # a few compressed bytes can expand to very many
    config.timeout_graceful_shutdown = 5
    return ModelServer(config, registry, watch)
