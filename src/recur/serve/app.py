"""The routes of `recur serve`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from recur.errors import RecurError
from recur.serve import predict, steps, tokenizer
from recur.serve.completions import completions
from recur.serve.errors import refusal, status_of
from recur.serve.guard import Guard
from recur.serve.hub import Hub
from recur.serve.metrics import TYPE, metrics
from recur.serve.openapi import document
from recur.typedefs import JsonObject
from recur.web.answers import Answer, error_text, without_folders
from recur.web.body import read_json
from recur.web.guard import LOOPBACK

Handler = Callable[[Request], Awaitable[Response]]


def make_app(hub: Hub, tokens: Sequence[str], hosts: tuple[str, ...] | None = LOOPBACK) -> Guard:
    """The server of a hub's models, as an ASGI application; without tokens, for anyone who reaches it."""
    handlers = Handlers(hub)
    routes = [
        Route("/health", handlers.health),
        Route("/metrics", handlers.metrics),
        Route("/openapi.json", handlers.openapi),
        Route("/v1/models", handlers.models),
        Route("/v1/models/{model:path}", handlers.model),
        Route("/v1/completions", Counted(hub, handlers.completions), methods=["POST"]),
        Route("/v1/predict", Counted(hub, handlers.predict), methods=["POST"]),
        Route("/v1/sessions", Counted(hub, handlers.begin), methods=["POST"]),
        Route("/v1/sessions/{session}", Counted(hub, handlers.session), methods=["GET", "DELETE"]),
        Route("/v1/sessions/{session}/state", Counted(hub, handlers.state), methods=["GET"]),
        Route("/v1/sessions/{session}/step", Counted(hub, handlers.step_one), methods=["POST"]),
        Route("/v1/step", Counted(hub, handlers.step_many), methods=["POST"]),
        Route("/tokenizer_info", handlers.tokenizer_info),
        Route("/tokenize", Counted(hub, handlers.tokenize), methods=["POST"]),
        Route("/detokenize", Counted(hub, handlers.detokenize), methods=["POST"]),
        WebSocketRoute("/v1/sessions/{session}/step", handlers.socket),
        WebSocketRoute("/v1/step", handlers.socket),
    ]
    errors = dict.fromkeys((RecurError, OSError, HTTPException, ClientDisconnect), handlers.error)
    app = Starlette(routes=routes, exception_handlers=errors)
    app.router.redirect_slashes = False
    return Guard(app, tokens, hosts)


class Counted:
    """A route whose requests are limited, and waited for when the server is to stop."""

    def __init__(self, hub: Hub, handler: Handler) -> None:
        self.hub, self.handler = hub, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        self.hub.admit(scope["owner"])
        self.hub.in_flight += 1
        try:
            response = await self.handler(request)
            self.hub.requests[_route(scope), response.status_code] += 1
            await response(scope, receive, send)
        finally:
            self.hub.in_flight -= 1


class Handlers:
    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    async def error(self, request: Request, error: Exception) -> Response:
        """The answer to every request that ends in an error."""
        if isinstance(error, HTTPException):
            return refusal(error.status_code, error.detail, dict(error.headers or {}))
        status = 499 if isinstance(error, ClientDisconnect) else status_of(error)
        self.hub.requests[_route(request.scope), status] += 1
        text = error_text(error)
        for path in self.hub.models.paths.values():
            text = without_folders(text, path)
        return refusal(status, text)

    async def _body(self, request: Request) -> JsonObject:
        return await read_json(request, self.hub.limits.body)

    # What it is ---------------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        draining = self.hub.draining
        return Answer({"status": "stopping" if draining else "ok"}, 503 if draining else 200)

    async def metrics(self, request: Request) -> Response:
        return Response(metrics(self.hub), media_type=None, headers={"content-type": TYPE})

    async def openapi(self, request: Request) -> Response:
        return Answer(document(self.hub.limits))

    async def models(self, request: Request) -> Response:
        return Answer({"object": "list", "data": [served.described() for served in self.hub.models]})

    async def model(self, request: Request) -> Response:
        return Answer(self.hub.models.get(request.path_params["model"]).described())

    # What it makes of texts and numbers ---------------------------------------------------------------------------

    async def completions(self, request: Request) -> Response:
        return await completions(self.hub, request, await self._body(request), request.scope["owner"])

    async def predict(self, request: Request) -> Response:
        served, found = await predict.predict(self.hub, await self._body(request))
        return Answer({"object": "list", "model": served.name, "task": served.task, "data": found})

    async def tokenizer_info(self, request: Request) -> Response:
        return Answer(tokenizer.tokenizer_info(self.hub.models, request.query_params.get("model")))

    async def tokenize(self, request: Request) -> Response:
        return Answer(tokenizer.tokenize(self.hub.models, await self._body(request), self.hub.limits))

    async def detokenize(self, request: Request) -> Response:
        return Answer(tokenizer.detokenize(self.hub.models, await self._body(request)))

    # Sessions -----------------------------------------------------------------------------------------------------

    async def begin(self, request: Request) -> Response:
        body = await self._body(request)
        begun = await steps.begin_sessions(self.hub, request, body, request.scope["owner"])
        return Answer(begun[0] if body.get("n") is None else {"object": "list", "data": begun}, 201)

    async def session(self, request: Request) -> Response:
        name, owner, sessions = request.path_params["session"], request.scope["owner"], self.hub.sessions
        if request.method == "DELETE":
            await sessions.remove(name, owner)
            return Answer({"id": name, "object": "session", "deleted": True})
        async with sessions.use(name, owner) as session:
            return Answer(sessions.described(session))

    async def state(self, request: Request) -> Response:
        sessions, owner = self.hub.sessions, request.scope["owner"]
        async with sessions.use(request.path_params["session"], owner) as session:
            parts = await sessions.state(session)
            token = sessions.token(session.served, owner, session.steps, session.last, parts)
            return Answer({**sessions.described(session), "state": token})

    async def step_one(self, request: Request) -> Response:
        body = await self._body(request)
        return Answer(await steps.step_one(self.hub, body, request.scope["owner"], request.path_params["session"]))

    async def step_many(self, request: Request) -> Response:
        found = await steps.step_many(self.hub, await self._body(request), request.scope["owner"])
        return Answer({"object": "list", **found})

    async def socket(self, socket: WebSocket) -> None:
        await steps.talk(self.hub, socket, socket.scope["owner"], socket.path_params.get("session"))


def _route(scope: Scope) -> str:
    """The path as it was declared: ids would make a series each."""
    path: str = scope["path"]
    for name, value in scope.get("path_params", {}).items():
        path = path.replace(str(value), f"{{{name}}}")
    return path
