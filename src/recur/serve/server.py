"""uvicorn server of `recur serve`: WebSockets, OpenAI's errors, signals, and a graceful shutdown."""

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
"""Seconds between two pings of a WebSocket, and for the answer to one."""

SWITCH_INTERVAL = 2e-4
"""Seconds after which a computing thread yields to the other one."""


class ServeConnection(server.Connection):
    """Connection of one client, with errors in OpenAI's form."""

    @staticmethod
    def error_body(status: int, line: str) -> bytes:
        return error_body(status, line)

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
            # uvicorn re-raises the signals that it has handled. After a graceful shutdown the process must end with 0.
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
    config.ws_per_message_deflate = False  # a few compressed bytes can expand to very many
    config.timeout_graceful_shutdown = 5
    return ModelServer(config, registry, watch)
