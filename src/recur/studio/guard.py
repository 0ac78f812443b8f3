"""Checks before every request: the Host header, where it comes from, and the token.

A page of another site can have the browser send requests to this machine. Under a name of its own for this address
(DNS rebinding) it could read the answers too: so the Host header must be one of ours. Where a browser says which site a
request comes from (Sec-Fetch-Site, Origin), it must be this one, or the user's own typing. And nothing at all, not even
what only reads, is answered without the token: other users of the same machine can reach a loopback address as well.
"""

from __future__ import annotations

import hashlib
import secrets
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recur.studio.answers import refusal

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "recur-token"
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


class Guard:
    """ASGI middleware. `hosts` are the names under which the server may be called; None is any."""

    def __init__(self, app: ASGIApp, token: str, hosts: tuple[str, ...] | None = LOOPBACK) -> None:
        self.app, self.hosts, self.token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        assert scope["type"] == "http", "the server speaks nothing else"
        await (self._rejection(scope, Headers(scope=scope)) or self.app)(scope, receive, with_headers)

    def _rejection(self, scope: Scope, headers: Headers) -> Response | None:
        """The response to a request that must not pass; None for one that may."""
        if sum(len(name) + len(value) for name, value in headers.raw) + len(scope["raw_path"]) > HEAD:
            return refusal(431, f"the request's headers are too large: at most {HEAD:,} bytes")
        host = headers.get("host", "")
        name, port = _split(host)
        if not name or (self.hosts is not None and name not in self.hosts):
            return refusal(400, f"unknown Host header {host[:100]!r}")
        if any(_split(origin.partition("://")[2]) != (name, port) for origin in headers.getlist("origin")):
            return refusal(403, "cross-origin request refused")
        if not all(_from_here(site, scope["method"], headers) for site in headers.getlist("sec-fetch-site")):
            return refusal(403, "request from another site refused; paste the address into the browser's own line")
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if scope["path"] == "/" and any(_equal(given, self.token) for given in query.get("token", [])):
            redirect = RedirectResponse("/", 303)  # so that the token does not stay in the address
            cookie = f"{COOKIE}-{port}"  # a browser has one jar for all ports of a host
            redirect.set_cookie(cookie, fingerprint(self.token), httponly=True, samesite="strict")
            return redirect
        if self._has_token(headers, f"{COOKIE}-{port}"):
            return None
        return refusal(401, "missing or wrong token; open the address that recur studio printed")

    def _has_token(self, headers: Headers, cookie: str) -> bool:
        kept = fingerprint(self.token)
        pairs = (pair.partition("=") for part in headers.getlist("cookie") for pair in part.split(";"))
        if any(name.strip() == cookie and _equal(value.strip(), kept) for name, _, value in pairs):
            return True
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return _equal(bearer.encode("latin-1").decode("utf-8", "replace"), self.token)


def fingerprint(token: str) -> str:
    """What the cookie holds: letters and digits for any token, and not the token itself."""
    return hashlib.sha256(b"recur studio " + token.encode()).hexdigest()


def _from_here(site: str, method: str, headers: Headers) -> bool:
    """Whether a request is the page's own (`same-origin`), or the user's, who typed or opened its address (`none`).

    Another port of this machine is `same-site`: a link there may be followed, and nothing more.
    """
    follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return site in ("same-origin", "none") or (site == "same-site" and method == "GET" and follows_link)


def _equal(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def _split(host: str) -> tuple[str, int]:
    """A Host header as name and port: [::1]:8000 is ::1 and 8000; no name where it is none."""
    try:
        parts = urlsplit(f"//{host}")
        whole = parts.netloc == host and "@" not in host
        return (parts.hostname or "", parts.port or 80) if whole else ("", 0)
    except ValueError:  # a bracket that is not closed, a port that is no number
        return "", 0
