"""Checks before every request: the Host header, the origin, and a token where one is required."""

from __future__ import annotations

import secrets
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "recur-token"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Guard:
    """ASGI middleware. By DNS rebinding, a page of another site may send requests to this machine under a name of its
    own: so the Host header must be one of ours, and the origin, where a browser sends it, the same host."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] = LOOPBACK, token: str | None = None) -> None:
        self.app, self.hosts, self.token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        response = self._rejection(scope, Headers(scope=scope))
        if response is not None:
            await response(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, with_headers)

    def _rejection(self, scope: Scope, headers: Headers) -> Response | None:
        """The response to a request that must not pass; None for one that may."""
        host = headers.get("host", "")
        if self.token is None and _host_name(host) not in self.hosts:
            return JSONResponse({"error": f"unknown Host header {host[:100]!r}"}, 400)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return JSONResponse({"error": "cross-origin request refused"}, 403)
        if self.token is None or self._has_token(headers, self.token):
            return None
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and _equal(given, self.token):
            redirect = RedirectResponse("/", 303)  # so that the token does not stay in the address
            redirect.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return redirect
        return JSONResponse({"error": "missing or wrong token; open the address that recur studio printed"}, 401)

    def _has_token(self, headers: Headers, token: str) -> bool:
        cookies: SimpleCookie = SimpleCookie(headers.get("cookie", ""))
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return _equal(cookies[COOKIE].value if COOKIE in cookies else bearer, token)


def _equal(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def _host_name(host: str) -> str:
    """A Host header without its port: [::1]:8000 is ::1."""
    return urlsplit(f"//{host}").hostname or ""
