"""Who may see the page: whoever has opened the address that was printed, token and all."""

from __future__ import annotations

import hashlib
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Scope

from recur.serve.http import server
from recur.serve.http.server import LOOPBACK, bearer_token, tokens_equal

COOKIE = "recur-token"


class Guard(server.RequestGuard):
    """One token, which a browser keeps as a cookie."""

    def __init__(self, app: ASGIApp, token: str, hosts: tuple[str, ...] | None = LOOPBACK) -> None:
        super().__init__(app, hosts)
        self.token = token

    def admit(self, scope: Scope, headers: Headers, port: int) -> Response | None:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        cookie = f"{COOKIE}-{port}"  # a browser has one jar for all ports of a host
        if scope["path"] == "/" and any(tokens_equal(given, self.token) for given in query.get("token", [])):
            redirect = RedirectResponse("/", 303)  # so that the token does not stay in the address
            redirect.set_cookie(cookie, fingerprint(self.token), httponly=True, samesite="strict")
            return redirect
        if self._has_token(headers, cookie):
            return None
        return self.refuse(401, "missing or wrong token; open the address that recur studio printed")

    def _has_token(self, headers: Headers, cookie: str) -> bool:
        kept = fingerprint(self.token)
        pairs = (pair.partition("=") for part in headers.getlist("cookie") for pair in part.split(";"))
        if any(name.strip() == cookie and tokens_equal(value.strip(), kept) for name, _, value in pairs):
            return True
        return tokens_equal(bearer_token(headers), self.token)


def fingerprint(token: str) -> str:
    """What the cookie holds: letters and digits for any token, and not the token itself."""
    return hashlib.sha256(b"recur studio " + token.encode()).hexdigest()
