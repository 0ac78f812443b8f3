"""Routes of `recur serve`, and the check of tokens before them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from recur.errors import RecurError
from recur.serve import predict, steps
from recur.serve.completions import complete
from recur.serve.http import server
from recur.serve.http.requests import read_json
from recur.serve.http.responses import FiniteJSONResponse, error_text, json_response, without_folders
from recur.serve.http.server import LOOPBACK, bearer_token, tokens_equal
from recur.serve.metrics import METRICS_TYPE, render_metrics
from recur.serve.registry import Registry
from recur.serve.responses import refusal, status_of
from recur.serve.schemas import openapi_document
from recur.utils.types import JsonObject

PUBLIC_PATHS = ("/health",)
"""Paths that need no token."""
NOBODY = "nobody"


class TokenGuard(server.RequestGuard):
    """Guard with one or more tokens; the digest of a token identifies the owner of sessions."""

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


def make_app(registry: Registry, tokens: Sequence[str], hosts: tuple[str, ...] | None = LOOPBACK) -> TokenGuard:
    """Return the ASGI application of a registry; without tokens it admits anyone who reaches it."""
    handlers = Handlers(registry)
    routes = [
        Route("/health", handlers.health),
        Route("/metrics", handlers.metrics),
        Route("/openapi.json", handlers.openapi),
        Route("/v1/models", handlers.models),
        Route("/v1/models/{model:path}", handlers.model),
        Route("/v1/completions", LimitedRoute(registry, handlers.completions), methods=["POST"]),
        Route("/v1/predict", LimitedRoute(registry, handlers.predict), methods=["POST"]),
        Route("/v1/sessions", LimitedRoute(registry, handlers.begin), methods=["POST"]),
        Route("/v1/sessions/{session}", LimitedRoute(registry, handlers.session), methods=["GET", "DELETE"]),
        Route("/v1/sessions/{session}/state", LimitedRoute(registry, handlers.state), methods=["GET"]),
        Route("/v1/sessions/{session}/step", LimitedRoute(registry, handlers.step_one), methods=["POST"]),
        Route("/v1/step", LimitedRoute(registry, handlers.step_many), methods=["POST"]),
        Route("/tokenizer_info", handlers.tokenizer_info),
        Route("/tokenize", LimitedRoute(registry, handlers.tokenize), methods=["POST"]),
        Route("/detokenize", LimitedRoute(registry, handlers.detokenize), methods=["POST"]),
        WebSocketRoute("/v1/sessions/{session}/step", handlers.socket),
        WebSocketRoute("/v1/step", handlers.socket),
    ]
    errors = dict.fromkeys((RecurError, OSError, HTTPException, ClientDisconnect), handlers.error)
    app = Starlette(routes=routes, exception_handlers=errors)
    app.router.redirect_slashes = False
    return TokenGuard(app, tokens, hosts)


class LimitedRoute:
    """Route whose requests are limited in number, counted, and awaited when the server stops."""

    def __init__(self, registry: Registry, handler: Handler) -> None:
        self.registry, self.handler = registry, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        self.registry.admit(scope["owner"])
        self.registry.in_flight += 1
        try:
            response = await self.handler(request)
            self.registry.requests[_route_template(scope), response.status_code] += 1
            await response(scope, receive, send)
        finally:
            self.registry.in_flight -= 1


class Handlers:
    """Handlers of the routes."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def error(self, request: Request, error: Exception) -> Response:
        """Return the response to a request that ends in an error."""
        if isinstance(error, HTTPException):
            return refusal(error.status_code, error.detail, dict(error.headers or {}))
        status = 499 if isinstance(error, ClientDisconnect) else status_of(error)
        self.registry.requests[_route_template(request.scope), status] += 1
        text = error_text(error)
        for path in self.registry.models.paths.values():
            text = without_folders(text, path)
        return refusal(status, text)

    async def _body(self, request: Request) -> JsonObject:
        return await read_json(request, self.registry.limits.body)

    # Information --------------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        draining = self.registry.draining
        return FiniteJSONResponse({"status": "stopping" if draining else "ok"}, 503 if draining else 200)

    async def metrics(self, request: Request) -> Response:
        return Response(render_metrics(self.registry), media_type=None, headers={"content-type": METRICS_TYPE})

    async def openapi(self, request: Request) -> Response:
        return FiniteJSONResponse(openapi_document(self.registry.limits))

    async def models(self, request: Request) -> Response:
        return FiniteJSONResponse({"object": "list", "data": [served.describe() for served in self.registry.models]})

    async def model(self, request: Request) -> Response:
        return FiniteJSONResponse(self.registry.models.get(request.path_params["model"]).describe())

    # Completions and predictions -----------------------------------------------------------------------------------

    async def completions(self, request: Request) -> Response:
        return await complete(self.registry, request, await self._body(request), request.scope["owner"])

    async def predict(self, request: Request) -> Response:
        served, found = await predict.predict(self.registry, await self._body(request))
        return json_response({"object": "list", "model": served.name, "task": served.task, "data": found})

    async def tokenizer_info(self, request: Request) -> Response:
        return FiniteJSONResponse(predict.tokenizer_info(self.registry.models, request.query_params.get("model")))

    async def tokenize(self, request: Request) -> Response:
        return json_response(predict.tokenize(self.registry.models, await self._body(request), self.registry.limits))

    async def detokenize(self, request: Request) -> Response:
        return FiniteJSONResponse(predict.detokenize(self.registry.models, await self._body(request)))

    # Sessions -----------------------------------------------------------------------------------------------------

    async def begin(self, request: Request) -> Response:
        body = await self._body(request)
        return FiniteJSONResponse(await steps.begin_sessions(self.registry, request, body, request.scope["owner"]), 201)

    async def session(self, request: Request) -> Response:
        name, owner, sessions = request.path_params["session"], request.scope["owner"], self.registry.sessions
        if request.method == "DELETE":
            await sessions.remove(name, owner)
            return FiniteJSONResponse({"id": name, "object": "session", "deleted": True})
        async with sessions.use(name, owner) as session:
            return FiniteJSONResponse(sessions.describe(session))

    async def state(self, request: Request) -> Response:
        sessions, owner = self.registry.sessions, request.scope["owner"]
        async with sessions.use(request.path_params["session"], owner) as session:
            parts = await sessions.state(session)
            token = sessions.token(session.served, owner, session.steps, session.last, parts)
            return FiniteJSONResponse({**sessions.describe(session), "state": token})

    async def step_one(self, request: Request) -> Response:
        body = await self._body(request)
        return json_response(
            await steps.step_one(self.registry, body, request.scope["owner"], request.path_params["session"])
        )

    async def step_many(self, request: Request) -> Response:
        found = await steps.step_many(self.registry, await self._body(request), request.scope["owner"])
        return json_response({"object": "list", **found})

    async def socket(self, socket: WebSocket) -> None:
        await steps.serve_socket(self.registry, socket, socket.scope["owner"], socket.path_params.get("session"))


def _route_template(scope: Scope) -> str:
    """Return the path as it was declared: each id would make a time series of its own in Prometheus."""
    path: str = scope["path"]
    for name, value in scope.get("path_params", {}).items():
        path = path.replace(str(value), f"{{{name}}}")
    return path
