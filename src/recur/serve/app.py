"""Who may ask: whoever has one of the tokens, or anyone on this machine where none is wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import (ASGIApp, Scope)
from recur.serve.responses import refusal
from recur.serve.http import server
from recur.serve.http.server import (LOOPBACK, bearer_token, tokens_equal)
from collections.abc import (Awaitable, Callable, Sequence)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import (ClientDisconnect, Request)
from starlette.routing import (Route, WebSocketRoute)
from starlette.types import (Receive, Scope, Send)
from starlette.websockets import WebSocket
from recur.errors import RecurError
from recur.serve import predict, steps
from recur.serve import predict
from recur.serve.completions import complete
from recur.serve.responses import (refusal, status_of)
from recur.serve.http.responses import (FiniteJSONResponse, error_text, without_folders)
from recur.serve.http.requests import read_json
from recur.serve.http.server import LOOPBACK
from recur.serve.http.responses import json_response
from recur.serve.registry import Registry
from recur.serve.metrics import (METRICS_TYPE, render_metrics)
from recur.serve.schemas import document
from recur.utils.types import JsonObject

PUBLIC_PATHS = ("/health",)
"""What is answered to anyone: whether the server is there."""
NOBODY = "nobody"


class TokenGuard(server.RequestGuard):
    """Of each token, its owner is known by a digest: sessions are theirs who began them."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str], hosts: tuple[str, ...] | None = LOOPBACK) -> None:
        super().__init__(app, hosts)
        self.owners = {token: hashlib.sha256(b"recur serve " + token.encode()).hexdigest()[:16] for token in tokens}

    def admit(self, scope: Scope, headers: Headers, port: int) -> Response | None:
        scope["owner"] = NOBODY
        if not self.owners or scope["path"] in PUBLIC_PATHS:
            return None
        given = bearer_token(headers)
        found = [owner for token, owner in self.owners.items() if tokens_equal(given, token)]
        if not found:
            return self.refuse(401, "missing or wrong token; send the header Authorization: Bearer TOKEN")
        scope["owner"] = found[0]
        return None

    def refuse(self, status: int, text: str) -> Response:
        return refusal(status, text)


Handler = Callable[[Request], Awaitable[Response]]


def make_app(hub: Registry, tokens: Sequence[str], hosts: tuple[str, ...] | None = LOOPBACK) -> TokenGuard:
    """The server of a hub's models, as an ASGI application; without tokens, for anyone who reaches it."""
    handlers = Handlers(hub)
    routes = [
        Route("/health", handlers.health),
        Route("/metrics", handlers.metrics),
        Route("/openapi.json", handlers.openapi),
        Route("/v1/models", handlers.models),
        Route("/v1/models/{model:path}", handlers.model),
        Route("/v1/completions", LimitedRoute(hub, handlers.completions), methods=["POST"]),
        Route("/v1/predict", LimitedRoute(hub, handlers.predict), methods=["POST"]),
        Route("/v1/sessions", LimitedRoute(hub, handlers.begin), methods=["POST"]),
        Route("/v1/sessions/{session}", LimitedRoute(hub, handlers.session), methods=["GET", "DELETE"]),
        Route("/v1/sessions/{session}/state", LimitedRoute(hub, handlers.state), methods=["GET"]),
        Route("/v1/sessions/{session}/step", LimitedRoute(hub, handlers.step_one), methods=["POST"]),
        Route("/v1/step", LimitedRoute(hub, handlers.step_many), methods=["POST"]),
        Route("/tokenizer_info", handlers.tokenizer_info),
        Route("/tokenize", LimitedRoute(hub, handlers.tokenize), methods=["POST"]),
        Route("/detokenize", LimitedRoute(hub, handlers.detokenize), methods=["POST"]),
        WebSocketRoute("/v1/sessions/{session}/step", handlers.socket),
        WebSocketRoute("/v1/step", handlers.socket),
    ]
    errors = dict.fromkeys((RecurError, OSError, HTTPException, ClientDisconnect), handlers.error)
    app = Starlette(routes=routes, exception_handlers=errors)
    app.router.redirect_slashes = False
    return TokenGuard(app, tokens, hosts)


class LimitedRoute:
    """A route whose requests are limited, and waited for when the server is to stop."""

    def __init__(self, hub: Registry, handler: Handler) -> None:
        self.hub, self.handler = hub, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        self.hub.admit(scope["owner"])
        self.hub.in_flight += 1
        try:
            response = await self.handler(request)
            self.hub.requests[_route_template(scope), response.status_code] += 1
            await response(scope, receive, send)
        finally:
            self.hub.in_flight -= 1


class Handlers:
    def __init__(self, hub: Registry) -> None:
        self.hub = hub

    async def error(self, request: Request, error: Exception) -> Response:
        """The answer to every request that ends in an error."""
        if isinstance(error, HTTPException):
            return refusal(error.status_code, error.detail, dict(error.headers or {}))
        status = 499 if isinstance(error, ClientDisconnect) else status_of(error)
        self.hub.requests[_route_template(request.scope), status] += 1
        text = error_text(error)
        for path in self.hub.models.paths.values():
            text = without_folders(text, path)
        return refusal(status, text)

    async def _body(self, request: Request) -> JsonObject:
        return await read_json(request, self.hub.limits.body)

    # What it is ---------------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        draining = self.hub.draining
        return FiniteJSONResponse({"status": "stopping" if draining else "ok"}, 503 if draining else 200)

    async def metrics(self, request: Request) -> Response:
        return Response(render_metrics(self.hub), media_type=None, headers={"content-type": METRICS_TYPE})

    async def openapi(self, request: Request) -> Response:
        return FiniteJSONResponse(document(self.hub.limits))

    async def models(self, request: Request) -> Response:
        return FiniteJSONResponse({"object": "list", "data": [served.described() for served in self.hub.models]})

    async def model(self, request: Request) -> Response:
        return FiniteJSONResponse(self.hub.models.get(request.path_params["model"]).described())

    # What it makes of texts and numbers ---------------------------------------------------------------------------

    async def completions(self, request: Request) -> Response:
        return await complete(self.hub, request, await self._body(request), request.scope["owner"])

    async def predict(self, request: Request) -> Response:
        served, found = await predict.predict(self.hub, await self._body(request))
        return json_response({"object": "list", "model": served.name, "task": served.task, "data": found})

    async def tokenizer_info(self, request: Request) -> Response:
        return FiniteJSONResponse(predict.tokenizer_info(self.hub.models, request.query_params.get("model")))

    async def tokenize(self, request: Request) -> Response:
        return json_response(predict.tokenize(self.hub.models, await self._body(request), self.hub.limits))

    async def detokenize(self, request: Request) -> Response:
        return FiniteJSONResponse(predict.detokenize(self.hub.models, await self._body(request)))

    # Sessions -----------------------------------------------------------------------------------------------------

    async def begin(self, request: Request) -> Response:
        body = await self._body(request)
        begun = await steps.begin_sessions(self.hub, request, body, request.scope["owner"])
        return FiniteJSONResponse(begun[0] if body.get("n") is None else {"object": "list", "data": begun}, 201)

    async def session(self, request: Request) -> Response:
        name, owner, sessions = request.path_params["session"], request.scope["owner"], self.hub.sessions
        if request.method == "DELETE":
            await sessions.remove(name, owner)
            return FiniteJSONResponse({"id": name, "object": "session", "deleted": True})
        async with sessions.use(name, owner) as session:
            return FiniteJSONResponse(sessions.described(session))

    async def state(self, request: Request) -> Response:
        sessions, owner = self.hub.sessions, request.scope["owner"]
        async with sessions.use(request.path_params["session"], owner) as session:
            parts = await sessions.state(session)
            token = sessions.token(session.served, owner, session.steps, session.last, parts)
            return FiniteJSONResponse({**sessions.described(session), "state": token})

    async def step_one(self, request: Request) -> Response:
        body = await self._body(request)
        return json_response(await steps.step_one(self.hub, body, request.scope["owner"], request.path_params["session"]))

    async def step_many(self, request: Request) -> Response:
        found = await steps.step_many(self.hub, await self._body(request), request.scope["owner"])
        return json_response({"object": "list", **found})

    async def socket(self, socket: WebSocket) -> None:
        await steps.serve_socket(self.hub, socket, socket.scope["owner"], socket.path_params.get("session"))


def _route_template(scope: Scope) -> str:
    """The path as it was declared: ids would make a series each."""
    path: str = scope["path"]
    for name, value in scope.get("path_params", {}).items():
        path = path.replace(str(value), f"{{{name}}}")
    return path
