"""What stands before every request: the right host, no other site's page, a token where one is needed."""

from __future__ import annotations

import secrets
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse

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
    """ASGI around ASGI. A page on another site may send requests to this machine, under a name that it lets point here:
    so the host named must be ours, and the origin, where a browser tells it, the same host."""

    def __init__(self, app: Any, hosts: tuple[str, ...] = LOOPBACK, token: str | None = None) -> None:
        self.app, self.hosts, self.token = app, hosts, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    sent[name] = value
            await send(message)

        await self.app(scope, receive, with_headers)

    def _refusal(self, scope: Any, headers: Headers) -> Any:
        host = headers.get("host", "")
        if self.token is None and _name(host) not in self.hosts:
            return JSONResponse({"error": f"this is not {host[:100]}"}, 400)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return JSONResponse({"error": "a page of another site may not ask this"}, 403)
        if self.token is None or self._known(headers):
            return None
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and secrets.compare_digest(given.encode(), self.token.encode()):
            welcome = RedirectResponse("/", 303)  # so that the token does not stay in the address
            welcome.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return welcome
        return JSONResponse({"error": "a token is needed: open the address that recur studio printed"}, 401)

    def _known(self, headers: Headers) -> bool:
        assert self.token is not None
        cookies: SimpleCookie = SimpleCookie(headers.get("cookie", ""))
        given = cookies[COOKIE].value if COOKIE in cookies else headers.get("authorization", "").removeprefix("Bearer ")
        return secrets.compare_digest(given.encode(), self.token.encode())


def _name(host: str) -> str:
    """A host header without its port: [::1]:8000 is ::1."""
    return urlsplit(f"//{host}").hostname or ""
