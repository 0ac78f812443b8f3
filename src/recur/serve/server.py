"""Server that the studio and `recur serve` share: checks before every request, and uvicorn with limits on clients.

uvicorn waits for a request for as long as its client likes. Here a connection is closed if it does not send a complete
request in time, if it does not read its response, or if it is idle while new connections find no room. Data that is not
HTTP gets one line of JSON, as every other refusal, and prints nothing on the server's terminal.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import secrets
import socket
import sys
from abc import ABC, abstractmethod
from http import HTTPStatus
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage
from uvicorn.protocols.http.h11_impl import H11Protocol

from recur.errors import OptionError
from recur.i18n import Message
from recur.serve.http import ErrorFormat, encode_json, plain_error, refusal

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_HEADER_BYTES = 16 * 1024
"""Bytes of a request line and its headers."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
RESPONSE_STARTS = ("http.response.start", "websocket.http.response.start")


class RequestGuard(ABC):
    """ASGI middleware that checks the size of a request's headers, the Host header, its origin, and its token.

    A page of another site can make the browser send requests to this machine. With a domain name that resolves to this
    address (DNS rebinding) the page could also read the responses: therefore the Host header must be one of `hosts`
    (None allows any). If the browser reports the site that a request comes from (Sec-Fetch-Site, Origin), it must be
    this server or an address that the user typed. Nothing is answered without the token, not even a read: other users
    of the same machine can reach a loopback address as well.
    """

    error_format: ErrorFormat = staticmethod(plain_error)

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None = LOOPBACK) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: AsgiMessage) -> None:
            if message["type"] in RESPONSE_STARTS:
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # a report in a frame sets its own policy
            await send(message)

        await (self._rejection(scope, Headers(scope=scope)) or self.app)(scope, receive, with_headers)

    @abstractmethod
    def admit(self, scope: Scope, headers: Headers, port: int) -> Response | None:
        """Return the response to a request without a valid token; None if the request may pass."""

    def refuse(self, status: int, text: str) -> Response:
        return refusal(status, text, self.error_format)

    def _rejection(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response to a request that is refused; None if the request may pass."""
        if sum(len(name) + len(value) for name, value in headers.raw) + len(scope["raw_path"]) > MAX_HEADER_BYTES:
            return self.refuse(431, f"the request's headers are too large: at most {MAX_HEADER_BYTES:,} bytes")
        host = headers.get("host", "")
        name, port = _split_host(host)
        if not name or (self.hosts is not None and name not in self.hosts):
            return self.refuse(400, f"unknown Host header {host[:100]!r}")
        if any(_split_host(origin.partition("://")[2]) != (name, port) for origin in headers.getlist("origin")):
            return self.refuse(403, "cross-origin request refused")
        method = scope.get("method", "GET")  # a WebSocket has none
        if not all(_is_same_site(site, method, headers) for site in headers.getlist("sec-fetch-site")):
            return self.refuse(403, "request from another site refused; paste the address into the browser's own line")
        return self.admit(scope, headers, port)


def bearer_token(headers: Headers) -> str:
    """Return the token in the Authorization header of a request."""
    return headers.get("authorization", "").removeprefix("Bearer ").encode("latin-1").decode("utf-8", "replace")


def tokens_equal(given: str, token: str) -> bool:
    """Return True if two tokens are equal; the time does not depend on where they differ."""
    return secrets.compare_digest(given.encode(), token.encode())


def _is_same_site(site: str, method: str, headers: Headers) -> bool:
    """Return True if a request comes from the page itself (`same-origin`) or from the user's address bar (`none`).

    Another port of this machine is `same-site`: only following a link is allowed from there.
    """
    follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return site in ("same-origin", "none") or (site == "same-site" and method == "GET" and follows_link)


def _split_host(host: str) -> tuple[str, int]:
    """Split a Host header into name and port ([::1]:8000 is ::1 and 8000); the name is "" if the header is invalid."""
    try:
        parts = urlsplit(f"//{host}")
        whole = parts.netloc == host and "@" not in host
        return (parts.hostname or "", parts.port or 80) if whole else ("", 0)
    except ValueError:  # a bracket that is not closed, a port that is no number
        return "", 0


REQUEST_SECONDS = 10.0
"""Seconds from the connection or the first byte of a request to its last byte; a large body, for PROGRESS_BYTES."""
PROGRESS_BYTES = 1 << 20
"""Bytes that extend the deadline of a request: a large upload may take long, a trickle of bytes may not."""
IDLE_SECONDS = 5
"""Seconds that an idle connection is kept between two requests."""
UNREAD_SECONDS = 20.0
"""Seconds that a client may leave its response unread."""
LINGER_SECONDS = 2.0
"""Seconds that a refused connection stays open, so that its client can read the refusal."""
MAX_CONNECTIONS = 512
"""Connections at once, at most half of the files that the process may open; a new one replaces the one idle longest."""

SWITCH_INTERVAL = 0.001
"""Seconds after which a computing thread yields to others: a keystroke must not wait for a report."""

NO_RESPONSE_YET = (h11.IDLE, h11.SEND_RESPONSE)
INCOMPLETE = (h11.IDLE, h11.SEND_BODY)


def make_server(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> uvicorn.Server:
    """Return a server for an application, with the limits above."""
    sys.setswitchinterval(SWITCH_INTERVAL)
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
        log_config=None,  # errors go to stderr as Python's warnings do; other loggers are not changed
        log_level="error",
        access_log=False,
        proxy_headers=False,  # no trusted proxy could report the client's address
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )


def _open_files() -> int:
    """Return how many files the process may open; 256 on some systems."""
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return 2 * MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else soft


def _send_at_once(transport: asyncio.Transport) -> None:
    """Switch Nagle's algorithm off.

    The head and the body of a response are two writes. With Nagle's algorithm the second one waits for the client's
    acknowledgement of the first, which a client delays by 40 ms. asyncio sets TCP_NODELAY only on sockets that name
    their protocol (IPPROTO_TCP), and socket.create_server() makes sockets that do not.
    """
    line = transport.get_extra_info("socket")
    if line is not None and line.family in (socket.AF_INET, socket.AF_INET6):
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class FramingError(h11.RemoteProtocolError):
    """A request whose end two servers may see at two different bytes."""


class HttpParser(h11.Connection):
    """h11's parser, which also refuses requests of ambiguous length (RFC 9112, 6.1).

    A proxy that believes Content-Length and a server that believes Transfer-Encoding disagree on where the next request
    begins. An attacker hides a request in the difference (request smuggling).
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and b"content-length" in names:
                raise FramingError("the request has both Content-Length and Transfer-Encoding; send one of them")
            if b"transfer-encoding" in names and event.http_version == b"1.0":
                raise FramingError("HTTP/1.0 has no Transfer-Encoding; send Content-Length")
        return event


class Connection(H11Protocol):
    """Connection of one client."""

    error_format: ErrorFormat = staticmethod(plain_error)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.conn = HttpParser(h11.SERVER, MAX_HEADER_BYTES)
        _send_at_once(transport)
        self.waiting_since = self.loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._upgraded = False
        self._received = 0
        self._expect_request(REQUEST_SECONDS)
        if len(self.connections) > min(MAX_CONNECTIONS, _open_files() // 2):
            self._make_room()

    @property
    def waiting(self) -> bool:
        """Whether the server waits for the client: no request of the connection is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _make_room(self) -> None:
        others = [c for c in self.connections if isinstance(c, Connection) and c is not self and c.waiting]
        if not others:
            self._refuse(503, "too many connections; try again in a moment")
            return
        oldest = min(others, key=lambda connection: connection.waiting_since)
        self.connections.discard(oldest)  # its connection_lost runs later, when more connections may have arrived
        oldest.transport.abort()

    # Requests ---------------------------------------------------------------------------------------------

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True  # another protocol reads from here on; no deadline applies
        super().handle_websocket_upgrade(event)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._upgraded or self.conn.their_state not in INCOMPLETE:
            self._drop_deadline()
        elif self._deadline is None or self._received + len(data) >= PROGRESS_BYTES:
            self._received = 0
            self._expect_request(REQUEST_SECONDS)
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
            self._refuse(408, f"the request was not complete after {REQUEST_SECONDS:g} seconds")
        else:
            self._close()

    def send_400_response(self, msg: str) -> None:
        error = sys.exception()
        if isinstance(error, FramingError):
            self.scope = None  # type: ignore[assignment]  # the scope is of the previous request
            self._refuse(400, str(error))
        elif getattr(error, "error_status_hint", 400) == 431:
            self._refuse(431, f"the request's headers are too large: at most {MAX_HEADER_BYTES:,} bytes")
        else:
            self._refuse(400, "this is not an HTTP request")

    def _refuse(self, status: int, line: str) -> None:
        """Send a refusal without the application, if the response has not started, and close."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # the application must stop reading and writing
            self.cycle.message_event.set()
        if self.conn.our_state in NO_RESPONSE_YET:
            body = encode_json(self.error_format(status, line))
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

    # Responses --------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.waiting_since = self.loop.time()
        if self.transport.is_closing():
            self._close(UNREAD_SECONDS)
        elif self.conn.their_state is h11.SEND_BODY:  # body of the answered request, or of a pipelined one
            self._expect_request(LINGER_SECONDS if self.conn.our_state is h11.DONE else REQUEST_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()

    # Closing ---------------------------------------------------------------------------------------------

    def _close(self, seconds: float = LINGER_SECONDS) -> None:
        """Close when everything is sent, or after `seconds`: a client that does not read would keep it open."""
        self._drop_deadline()
        self.transport.close()
        self.loop.call_later(seconds, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        self._close(UNREAD_SECONDS)

    def shutdown(self) -> None:
        if self.waiting:
            self._close()
        else:
            self.cycle.keep_alive = False
            self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_deadline()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)


def check_address(host: str, port: int, has_token: bool) -> None:
    """Refuse a port out of range, and a host that other machines can reach without a token."""
    if not 0 <= port < 65536:
        raise OptionError(
            Message("{name} must lie in {low} … {high}, got {given}", name="--port", low="0", high="65535", given=port)
        )
    if not _is_loopback(host) and not has_token:
        raise OptionError(f"--host {host} can be reached from other machines; it needs --token")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OptionError(f"port {port} is in use; say another --port, or 0 for any that is free") from None


def server_url(listening: socket.socket, host: str) -> str:
    """Return the URL of a listening socket."""
    name = f"[{host}]" if listening.family == socket.AF_INET6 else host
    return f"http://{name}:{listening.getsockname()[1]}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
