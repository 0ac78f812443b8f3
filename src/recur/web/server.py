"""The server under the page: uvicorn, with limits on what a client may take.

uvicorn waits for a request as long as its client likes. Here a connection is closed that does not send a whole request
in time, that does not read its answer, or that is idle while newer ones have no place. What is no HTTP gets one line of
JSON, as every other refusal, and leaves nothing on the server's screen.
"""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from recur.web.answers import error_line
from recur.web.guard import HEAD

REQUEST = 10.0
"""Seconds from the first byte of a request, or from the connection, to its last; of a large one, for every part."""
PART = 1 << 20
"""Bytes of such a part: a text that is sent may take its time, and what trickles may not."""
IDLE = 5
"""Seconds that a connection is kept between two requests."""
STALLED = 20.0
"""Seconds that a client may leave its answer unread."""
LINGER = 2.0
"""Seconds for what is left once a request was refused: the end of a body that nobody wants, an unread line."""
CONNECTIONS = 512
"""At once, or half of the files that the process may open; one more takes the place of the one that has waited longest.
"""

SWITCH = 0.001
"""Seconds after which a thread that computes lets others go on: a key that is typed should not wait for a report."""

NO_RESPONSE_YET = (h11.IDLE, h11.SEND_RESPONSE)
INCOMPLETE = (h11.IDLE, h11.SEND_BODY)


def make_server(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> uvicorn.Server:
    """A server of an application, with the limits above."""
    sys.setswitchinterval(SWITCH)
    return uvicorn.Server(make_config(app, host, port))


def make_config(
    app: ASGIApp, host: str = "127.0.0.1", port: int = 0, connection: type[Connection] | None = None
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host,
        port,
        http=connection or Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,  # errors go where Python's own warnings do; no other logger is touched
        log_level="error",
        access_log=False,
        proxy_headers=False,  # nobody stands before it whose word on a client's address would count
        server_header=False,
        timeout_keep_alive=IDLE,
        h11_max_incomplete_event_size=HEAD,
    )


def _open_files() -> int:
    """How many files the process may open: 256 on some systems."""
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return 2 * CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * CONNECTIONS if soft == resource.RLIM_INFINITY else soft


class Connection(H11Protocol):
    """One client."""

    @staticmethod
    def error_body(status: int, line: str) -> bytes:
        """What a refusal that no application has seen says."""
        return error_line(line)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._upgraded = False
        self._received = 0
        self._expect_request(REQUEST)
        if len(self.connections) > min(CONNECTIONS, _open_files() // 2):
            self._make_room()

    @property
    def waiting(self) -> bool:
        """Whether it is the client's turn: no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _make_room(self) -> None:
        others = [c for c in self.connections if isinstance(c, Connection) and c is not self and c.waiting]
        if not others:
            self._refuse(503, "too many connections; try again in a moment")
            return
        oldest = min(others, key=lambda connection: connection.waiting_since)
        self.connections.discard(oldest)  # it is told later, when others may have come
        oldest.transport.abort()

    # Requests ---------------------------------------------------------------------------------------------

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True  # what comes from now on is another protocol's, and is not waited for here
        super().handle_websocket_upgrade(event)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._upgraded or self.conn.their_state not in INCOMPLETE:
            self._drop_deadline()
        elif self._deadline is None or self._received + len(data) >= PART:
            self._received = 0
            self._expect_request(REQUEST)
        else:
            self._received += len(data)

    def _expect_request(self, seconds: float) -> None:
        self._drop_deadline()
        self._deadline = self.loop.call_later(seconds, self._late)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        begun = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        if begun:
            self._refuse(408, f"the request was not whole after {REQUEST:g} seconds")
        else:
            self._close()

    def send_400_response(self, msg: str) -> None:
        error = sys.exception()
        if getattr(error, "error_status_hint", 400) == 431:
            self._refuse(431, f"the request's headers are too large: at most {HEAD:,} bytes")
        else:
            self._refuse(400, "this is not an HTTP request")

    def _refuse(self, status: int, line: str) -> None:
        """Answer from here, where that can still be done, and close."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever reads the body, or writes the answer, has nobody to talk to
            self.cycle.message_event.set()
        if self.conn.our_state in NO_RESPONSE_YET:
            body = self.error_body(status, line)
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            if status == 503:
                headers["retry-after"] = "1"
            lines = [
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
                *(f"{k}: {v}" for k, v in headers.items()),
                "",
                "",
            ]
            bare = self.conn.their_state is not h11.IDLE and self.scope is not None and self.scope["method"] == "HEAD"
            self.transport.write("\r\n".join(lines).encode() + (b"" if bare else body))
        self._close()

    # Answers ----------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.waiting_since = self.loop.time()
        if self.transport.is_closing():
            self._close(STALLED)
        elif self.conn.their_state is h11.SEND_BODY:  # of the request that was answered, or of one that came with it
            self._expect_request(LINGER if self.conn.our_state is h11.DONE else REQUEST)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()

    # The end ----------------------------------------------------------------------------------------------

    def _close(self, seconds: float = LINGER) -> None:
        """Close once all is sent, and after so long in any case: a client that does not read would keep it open."""
        self._drop_deadline()
        self.transport.close()
        self.loop.call_later(seconds, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        self._close(STALLED)

    def shutdown(self) -> None:
        if self.waiting:
            self._close()
        else:
            self.cycle.keep_alive = False
            self.loop.call_later(LINGER, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_deadline()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)
