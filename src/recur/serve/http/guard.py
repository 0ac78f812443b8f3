"""Checks before every request: its size, the Host header, and where it comes from; then whatever admits it.

A page of another site can have the browser send requests to this machine. Under a name of its own for this address
(DNS rebinding) it could read the answers too: so the Host header must be one of ours. Where a browser says which site a
request comes from (Sec-Fetch-Site, Origin), it must be this one, or the user's own typing. And nothing at all, not even
what only reads, is answered without the token: other users of the same machine can reach a loopback address as well.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recur import i18n
from recur.serve.http.answers import refusal

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEAD = 16 * 1024
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
STARTS = ("http.response.start", "websocket.http.response.start")


class Guard(ABC):
    """ASGI middleware. `hosts` are the names under which the server may be called; None is any."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None = LOOPBACK) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] in STARTS:
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # a report in a frame has a policy of its own
            await send(message)

        await (self._rejection(scope, Headers(scope=scope)) or self.app)(scope, receive, with_headers)

    @abstractmethod
    def admit(self, scope: Scope, headers: Headers, port: int) -> Response | None:
        """The response to a request that has not said who it is; None for one that may pass."""

    def refuse(self, status: int, text: str) -> Response:
        return refusal(status, text)

    def _rejection(self, scope: Scope, headers: Headers) -> Response | None:
        """The response to a request that must not pass; None for one that may."""
        if sum(len(name) + len(value) for name, value in headers.raw) + len(scope["raw_path"]) > HEAD:
            return self.refuse(431, f"the request's headers are too large: at most {HEAD:,} bytes")
        host = headers.get("host", "")
        name, port = _split(host)
        if not name or (self.hosts is not None and name not in self.hosts):
            return self.refuse(400, i18n.Message("unknown Host header {host}", host=repr(host[:100])))
        if any(_split(origin.partition("://")[2]) != (name, port) for origin in headers.getlist("origin")):
            return self.refuse(403, i18n.Message("cross-origin request refused"))
        method = scope.get("method", "GET")  # a WebSocket has none
        if not all(_from_here(site, method, headers) for site in headers.getlist("sec-fetch-site")):
            return self.refuse(403, "request from another site refused; paste the address into the browser's own line")
        return self.admit(scope, headers, port)


def bearer(headers: Headers) -> str:
    """The token that a request carries in its Authorization header."""
    return headers.get("authorization", "").removeprefix("Bearer ").encode("latin-1").decode("utf-8", "replace")


def equal(given: str, token: str) -> bool:
    """In a time that tells nothing of where they differ."""
    return secrets.compare_digest(given.encode(), token.encode())


def _from_here(site: str, method: str, headers: Headers) -> bool:
    """Whether a request is the page's own (`same-origin`), or the user's, who typed or opened its address (`none`).

    Another port of this machine is `same-site`: a link there may be followed, and nothing more.
    """
    follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return site in ("same-origin", "none") or (site == "same-site" and method == "GET" and follows_link)


def _split(host: str) -> tuple[str, int]:
    """A Host header as name and port: [::1]:8000 is ::1 and 8000; no name where it is none."""
    try:
        parts = urlsplit(f"//{host}")
        whole = parts.netloc == host and "@" not in host
        return (parts.hostname or "", parts.port or 80) if whole else ("", 0)
    except ValueError:  # a bracket that is not closed, a port that is no number
        return "", 0
