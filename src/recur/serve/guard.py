"""Who may ask: whoever has one of the tokens, or anyone on this machine where none is wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from recur.serve.errors import refusal
from recur.serve.http import guard
from recur.serve.http.guard import LOOPBACK, bearer, equal

OPEN = ("/health",)
"""What is answered to anyone: whether the server is there."""
NOBODY = "nobody"


class Guard(guard.Guard):
    """Of each token, its owner is known by a digest: sessions are theirs who began them."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str], hosts: tuple[str, ...] | None = LOOPBACK) -> None:
        super().__init__(app, hosts)
        self.owners = {token: hashlib.sha256(b"recur serve " + token.encode()).hexdigest()[:16] for token in tokens}

    def admit(self, scope: Scope, headers: Headers, port: int) -> Response | None:
        scope["owner"] = NOBODY
        if not self.owners or scope["path"] in OPEN:
            return None
        given = bearer(headers)
        found = [owner for token, owner in self.owners.items() if equal(given, token)]
        if not found:
            return self.refuse(401, "missing or wrong token; send the header Authorization: Bearer TOKEN")
        scope["owner"] = found[0]
        return None

    def refuse(self, status: int, text: str) -> Response:
        return refusal(status, text)
