"""The server under the models: as the studio's, with WebSockets, OpenAI's errors, and time to come to an end."""

from __future__ import annotations

import asyncio
import base64
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from recur.serve.http import server
from recur.serve.http.server import make_config
from recur.serve.registry import Registry
from recur.serve.responses import error_body

PING_SECONDS = 20.0
"""Seconds between two signs of life of a WebSocket, and for an answer to one."""

SWITCH_INTERVAL = 2e-4
"""Seconds after which a thread that computes lets the other one have its turn."""


class ServeConnection(server.Connection):
    """One client, whose running request may come to its end."""

    @staticmethod
    def error_body(status: int, line: str) -> bytes:
        return error_body(status, line)

    def _should_upgrade(self) -> bool:
        """Only for a whole opening handshake (RFC 6455, 4.2.1); any other wish is passed over, as HTTP allows, and the
        request answered as what it is beside."""
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
        # The engine's thread gives Python's lock away at every operation of PyTorch, and would wait 5 ms for it
        # while the server's thread reads a long message.
        sys.setswitchinterval(SWITCH_INTERVAL)
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
            # uvicorn would now send itself the SIGTERM that it has obeyed, and so end as if it had not.
            self._captured_signals = [each for each in self._captured_signals if each != signal.SIGTERM]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in self.servers:
            listening.close()
        await self.registry.drain()
        await super().shutdown(sockets)
        await self.registry.stop()


def make_server(
    app: ASGIApp, registry: Registry, host: str = "127.0.0.1", port: int = 0, watch: bool = False
) -> ModelServer:
    config = make_config(app, host, port, ServeConnection)
    config.ws = WebSocketsSansIOProtocol
    config.ws_max_size = registry.limits.body
    config.ws_ping_interval = config.ws_ping_timeout = PING_SECONDS
    config.ws_per_message_deflate = False  # a few bytes become many times as many on the way in
    config.timeout_graceful_shutdown = 5
    return ModelServer(config, registry, watch)
