"""Routes of `recur serve`: the check of tokens, the handlers, and predictions.

/tokenize, /detokenize and /tokenizer_info are those that lm-eval's remote tokenizer and vLLM's clients use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from anyio import to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from recur.data.text import BOS
from recur.errors import OptionError, RecurError
from recur.serve.completions import complete
from recur.serve.http import (
    BusyError,
    FiniteJSONResponse,
    RequestModel,
    error_text,
    json_response,
    openai_error,
    read_json,
    refusal,
    status_of,
    validate,
    without_folders,
)
from recur.serve.models import ServedModel, check_ids
from recur.serve.registry import METRICS_TYPE, Registry, render_metrics
from recur.serve.schemas import (
    CompletionRequest,
    DetokenizeRequest,
    PredictRequest,
    SessionRequest,
    TokenizeRequest,
    openapi_document,
)
from recur.serve.server import LOOPBACK, RequestGuard, bearer_token, tokens_equal
from recur.serve.steps import begin_sessions, serve_socket, step_many, step_one
from recur.tasks.common.predictor import NamedLines, read_tables
from recur.utils.types import JsonObject

PUBLIC_PATHS = ("/health",)
"""Paths that need no token."""
NOBODY = "nobody"


class TokenGuard(RequestGuard):
    """Guard with one or more tokens; the digest of a token identifies the owner of sessions."""

    error_format = staticmethod(openai_error)

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


Handler = Callable[[Request, Any], Awaitable[Response]]


def make_app(registry: Registry, tokens: Sequence[str], hosts: tuple[str, ...] | None = LOOPBACK) -> TokenGuard:
    """Return the ASGI application of a registry; without tokens it admits anyone who reaches it."""
    handlers = Handlers(registry)

    def limited(path: str, methods: str, handler: Handler, model: type[RequestModel] | None = None) -> Route:
        return Route(path, LimitedRoute(registry, handler, model), methods=methods.split())

    session = "/v1/sessions/{session}"
    routes = [
        Route("/health", handlers.health),
        Route("/metrics", handlers.metrics),
        Route("/openapi.json", handlers.openapi),
        Route("/v1/models", handlers.models),
        Route("/v1/models/{model:path}", handlers.model),
        limited("/v1/completions", "POST", handlers.completions, CompletionRequest),
        limited("/v1/predict", "POST", handlers.predict, PredictRequest),
        limited("/v1/sessions", "POST", handlers.begin, SessionRequest),
        limited(session, "GET DELETE", handlers.session),
        limited(f"{session}/state", "GET", handlers.state),
        limited(f"{session}/step", "POST", handlers.step_one),
        limited("/v1/step", "POST", handlers.step_many),
        Route("/tokenizer_info", handlers.tokenizer_info),
        limited("/tokenize", "POST", handlers.tokenize, TokenizeRequest),
        limited("/detokenize", "POST", handlers.detokenize, DetokenizeRequest),
        WebSocketRoute(f"{session}/step", handlers.socket),
        WebSocketRoute("/v1/step", handlers.socket),
    ]
    errors = dict.fromkeys((RecurError, OSError, HTTPException, ClientDisconnect), handlers.error)
    app = Starlette(routes=routes, exception_handlers=errors)
    app.router.redirect_slashes = False
    return TokenGuard(app, tokens, hosts)


class LimitedRoute:
    """Route whose requests are limited in number, counted, and awaited when the server stops.

    The handler gets the request and its body: validated by `model`, a JSON object if there is none, None for a GET.
    """

    def __init__(self, registry: Registry, handler: Handler, model: type[RequestModel] | None) -> None:
        self.registry, self.handler, self.model = registry, handler, model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, limits = Request(scope, receive, send), self.registry.limits
        self.registry.admit(scope["owner"])
        self.registry.in_flight += 1
        try:
            body: object = await read_json(request, limits.body) if request.method == "POST" else None
            response = await self.handler(request, validate(self.model, body, limits) if self.model else body)
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
            return refusal(error.status_code, error.detail, openai_error, error.headers)
        status, text = status_of(error), error_text(error)
        self.registry.requests[_route_template(request.scope), status] += 1
        for path in self.registry.models.paths.values():
            text = without_folders(text, path)
        return refusal(status, text, openai_error)

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

    async def completions(self, request: Request, body: CompletionRequest) -> Response:
        return await complete(self.registry, request, body)

    async def predict(self, request: Request, body: PredictRequest) -> Response:
        served = self.registry.models.get(body.model)
        found = await predict(self.registry, served, body)
        return json_response({"object": "list", "model": served.name, "task": served.task, "data": found})

    async def tokenizer_info(self, request: Request) -> Response:
        """Describe the tokenizer: `eos_token` ends a line, `bos_token` begins a text."""
        served = self._language(request.query_params.get("model"))
        vocab = served.vocab
        about: JsonObject = {"model": served.name, "tokenizer_class": vocab.tokenizer.kind, "vocab_size": len(vocab)}
        about |= {"bos_token": vocab.tokens[BOS], "unk_token": vocab.tokens[0], "pad_token": None}
        about["eos_token"] = "\n" if vocab.tokenizer.lines or "\n" in vocab.ids else None
        return FiniteJSONResponse({**about, "chat_template": None})

    async def tokenize(self, request: Request, body: TokenizeRequest) -> Response:
        """Return the token ids of a text; a token that is not in the vocabulary is <unk>, 0."""
        vocab = self._language(body.model).vocab
        tokens = [BOS] if body.prompt == vocab.tokens[BOS] else [int(k) for k in vocab.encode(body.prompt)]
        most = self.registry.limits.prompt_tokens
        return json_response({"tokens": tokens, "count": len(tokens), "max_model_len": most})

    async def detokenize(self, request: Request, body: DetokenizeRequest) -> Response:
        """Return the text of token ids."""
        served = self._language(body.model)
        check_ids(body.tokens, served)
        return FiniteJSONResponse({"prompt": served.vocab.decode(body.tokens)})

    def _language(self, name: str | None) -> ServedModel:
        """Return the language model of a name; the first language model if no name is given."""
        models = self.registry.models
        served = next((each for each in models if name is None and each.writes), None) or models.get(name)
        served.language  # noqa: B018  raises if the model generates no text
        return served

    # Sessions -----------------------------------------------------------------------------------------------------

    async def begin(self, request: Request, body: SessionRequest) -> Response:
        return FiniteJSONResponse(await begin_sessions(self.registry, request, body), 201)

    async def session(self, request: Request, body: None) -> Response:
        name, owner, sessions = request.path_params["session"], request.scope["owner"], self.registry.sessions
        if request.method == "DELETE":
            await sessions.remove(name, owner)
            return FiniteJSONResponse({"id": name, "object": "session", "deleted": True})
        async with sessions.use(name, owner) as session:
            return FiniteJSONResponse(sessions.describe(session))

    async def state(self, request: Request, body: None) -> Response:
        sessions, owner = self.registry.sessions, request.scope["owner"]
        async with sessions.use(request.path_params["session"], owner) as session:
            parts = await sessions.state(session)
            token = sessions.token(session.served, owner, session.steps, session.last, parts)
            return FiniteJSONResponse({**sessions.describe(session), "state": token})

    async def step_one(self, request: Request, body: JsonObject) -> Response:
        name = request.path_params["session"]
        return json_response(await step_one(self.registry, body, request.scope["owner"], name))

    async def step_many(self, request: Request, body: JsonObject) -> Response:
        return json_response({"object": "list", **await step_many(self.registry, body, request.scope["owner"])})

    async def socket(self, socket: WebSocket) -> None:
        await serve_socket(self.registry, socket, socket.scope["owner"], socket.path_params.get("session"))


def _route_template(scope: Scope) -> str:
    """Return the path as it was declared: each id would make a time series of its own in Prometheus."""
    path: str = scope["path"]
    for name, value in scope.get("path_params", {}).items():
        path = path.replace(str(value), f"{{{name}}}")
    return path


# Predictions ----------------------------------------------------------------------------------------------------------


async def predict(registry: Registry, served: ServedModel, request: PredictRequest) -> list[JsonObject]:
    """Return the predictions of a request. The name of a file is refused: clients must not read the server's files."""
    options = request.options.model_dump(exclude_none=True)
    inputs = parse_predict_inputs(request, served)
    count = len(inputs) if isinstance(inputs, list) else 1
    values = count * options.get("samples", 1) * max(options.get("length", 1), options.get("nbest", 1))
    if values > registry.limits.values:
        raise OptionError(
            f"the response would have {values:,} values, at most {registry.limits.values:,}: "
            "lower inputs × samples × length"
        )
    if registry.predicting.statistics().tasks_waiting >= registry.limits.requests // 4:
        raise BusyError("too many predictions are waiting; try again in a moment")

    on_bad_rows = options.pop("on_bad_rows", "warn")
    if served.predictor.takes_lines:
        options["on_bad_rows"] = on_bad_rows

    def work() -> list[JsonObject]:
        try:
            return [to_json(found) for found in served.predictor.predictions(inputs, **options)]
        except (TypeError, ValueError) as error:  # an option or an input that this task does not have
            if isinstance(error, RecurError):
                raise
            raise OptionError(f"{served.name} cannot read this: {error}") from None

    return await to_thread.run_sync(work, limiter=registry.predicting)


def parse_predict_inputs(request: PredictRequest, served: ServedModel) -> Any:
    """Return the inputs as `Predictor.predictions` takes them: lines, arrays, or the lines of one table."""
    predictor = served.predictor
    if not predictor.takes_lines:
        return table_lines(request.input)
    inputs = [request.input] if request.inputs is None else request.inputs
    if predictor.takes_files:  # images, or sequences of numbers
        return [_array(one) for one in inputs]
    for one in inputs:
        words = predictor.takes_words and isinstance(one, list) and all(isinstance(word, str) for word in one)
        if not isinstance(one, str) and not words:
            raise OptionError("an input must be a text")
    return inputs


def table_lines(value: Any) -> NamedLines:
    """Return a table as lines of CSV, given as CSV text, as columns by name, or as a list of rows."""
    if isinstance(value, str):
        return NamedLines([f"{line}\n" for line in value.splitlines()], "the table")
    if isinstance(value, dict | list) and value and not _names_file(value):
        tables, kind = read_tables(value)
        if kind != "several" and len(tables) == 1:
            return tables[0]
    raise OptionError("input must be a table: lines of CSV in one text, an object of columns, or a list of rows")


def _names_file(value: Any) -> bool:
    """Return True for a list of texts, which `table_of` would read as names of files."""
    return isinstance(value, list) and any(not isinstance(row, dict | int | float) for row in value)


def _array(one: Any) -> np.ndarray[Any, Any]:
    try:
        found = np.asarray(one, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        found = np.zeros(0, np.float32)
    if not found.size or not np.isfinite(found).all():
        raise OptionError("an input must be numbers: a sequence or an image as lists of lists")
    return found


def to_json(found: Any) -> Any:
    """Return predictions as JSON values, without NumPy types."""
    if isinstance(found, dict):
        return {str(name): to_json(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [to_json(value) for value in found]
    return found.item() if isinstance(found, np.generic) else found.tolist() if isinstance(found, np.ndarray) else found
