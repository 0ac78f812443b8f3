"""ASGI application of the studio: the page's files, JSON for its views, and the check of the token.

    VIEWS               views of a loaded model and a request:   POST /api/runs/RUN/NAME
    STANDALONE_VIEWS    views of a request alone:                POST /api/NAME

A new view is a function in the module of its subject and a line here; an error that it raises becomes a response of one
line. An invalid value of the request is an OptionError or a TextError.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from recur.errors import RecurError
from recur.i18n import Message, translate
from recur.serve import server
from recur.serve.http import (
    FiniteJSONResponse,
    UnknownError,
    error_text,
    plain_error,
    read_json,
    refusal,
    status_of,
    without_folders,
)
from recur.serve.server import LOOPBACK, bearer_token, tokens_equal
from recur.studio.generation import example, generate, next_tokens
from recur.studio.gradients import eigenvalues, gradients
from recur.studio.inspection import saliency, similar, unfold, unit_activations, unit_map
from recur.studio.loaded_model import LoadedModel
from recur.studio.prediction import mistakes, predict, samples
from recur.studio.reports import POLICY, diagnosis, labs, parse_language, report_page, run_lab
from recur.studio.runs import RunFolder, translate_summary
from recur.studio.step import run_step, step
from recur.studio.structures import structures
from recur.studio.training import TrainingHandlers
from recur.studio.workers import TextStream, WorkerPool
from recur.utils.types import JsonObject

VIEWS: dict[str, Callable[[LoadedModel, JsonObject], JsonObject]] = {
    "next": next_tokens,
    "saliency": saliency,
    "example": example,
    "samples": samples,
    "predict": predict,
    "mistakes": mistakes,
    "activations": unit_activations,
    "map": unit_map,
    "similar": similar,
    "gradients": gradients,
    "eigenvalues": eigenvalues,
    "unfold": unfold,
    "step": run_step,
    "diagnosis": diagnosis,
}
STANDALONE_VIEWS: dict[str, Callable[[JsonObject], JsonObject]] = {
    "labs": labs,
    "lab": run_lab,
    "step": step,
    "structures": structures,
}
UNQUEUED = frozenset({"next", "saliency", "step", "structures", "unfold"})
"""Views that do not wait in the run's queue, because they are faster than a keystroke."""
REPORT_VIEWS = frozenset({"diagnosis"})
"""Views of reports, which have a queue of their own."""


COOKIE = "recur-token"


class CookieGuard(server.RequestGuard):
    """Guard with one token, which a browser stores as a cookie after the printed address was opened."""

    def __init__(self, app: ASGIApp, token: str, hosts: tuple[str, ...] | None = LOOPBACK) -> None:
        super().__init__(app, hosts)
        self.token = token

    def admit(self, scope: Scope, headers: Headers, port: int) -> Response | None:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        cookie = f"{COOKIE}-{port}"  # cookies are shared by all ports of a host
        if scope["path"] == "/" and any(tokens_equal(given, self.token) for given in query.get("token", [])):
            redirect = RedirectResponse("/", 303)  # removes the token from the address bar
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
    """Return the content of the cookie: a digest and not the token itself."""
    return hashlib.sha256(b"recur studio " + token.encode()).hexdigest()


PAGE = Path(__file__).parent / "page"
FILES = {path.name: path for path in PAGE.iterdir() if path.is_file()}
"""Files of the page by name; a requested name is looked up, and never used as a path."""
STYLES = (
    *("style", "curves", "runs", "train", "write", "predict", "see"),
    *("gradients", "saliency", "step", "unfold", "xray", "labs"),
)
"""Style sheets in the order in which they apply; the page loads all of them as styles.css."""
BODY = 64 * 1024
"""Bytes of a request."""
FIRST = 0.2
"""Seconds for reading runs before the list is sent with those that are read."""
REST = 2.0
"""Seconds for each later part of the list."""


def make_app(
    folder: Path,
    token: str,
    hosts: tuple[str, ...] | None = LOOPBACK,
    trust: bool = False,
    read_only: bool = False,
    threads: int = 0,
) -> CookieGuard:
    """Return the ASGI application of a folder of runs."""
    studio = Studio(RunFolder(folder, trust, threads), read_only)
    routes = [
        Route("/", studio.page),
        Route("/page/{file}", studio.page),
        Route("/api/runs", studio.runs),
        Route("/api/runs/{name}", studio.curves),
        *studio.training.routes(),
        Route("/api/runs/{name}/xray", studio.xray, methods=["GET"]),
        Route("/api/runs/{name}/generate", studio.generate, methods=["POST"]),
        Route("/api/runs/{name}/{view}", studio.view, methods=["POST"]),
        Route("/api/{view}", studio.alone, methods=["POST"]),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers=dict.fromkeys((RecurError, OSError, HTTPException, ClientDisconnect), answer_error),
    )
    app.router.redirect_slashes = False
    app.state.studio = studio
    return CookieGuard(app, token, hosts)


def end_training(app: CookieGuard) -> str:
    """Stop the running job unless it is to be kept; return its name, or ""."""
    assert isinstance(app.app, Starlette)
    studio: Studio = app.app.state.studio
    return studio.training.queue.close()


class Studio:
    """Handlers of the routes."""

    def __init__(self, folder: RunFolder, read_only: bool = False) -> None:
        self.folder = folder
        self.workers = WorkerPool()
        self.training = TrainingHandlers(folder, self.workers, read_only)

    async def page(self, request: Request) -> Response:
        name = request.path_params.get("file", "index.html")
        files = [FILES[f"{style}.css"] for style in STYLES] if name == "styles.css" else [FILES.get(name)]
        if None in files:
            raise UnknownError(Message("the page has no such file"))
        content = b"".join(file.read_bytes() for file in files if file is not None)
        return Response(content, media_type=mimetypes.guess_type(name)[0])

    async def runs(self, request: Request) -> Response:
        first = request.query_params.get("run", "")
        if "rest" in request.query_params:
            found = await self.workers.rest(lambda: self.folder.list(REST, first))
        else:
            found = await self.workers.list(lambda: self.folder.list(FIRST, first))
        language = parse_language(request.headers.get("accept-language", ""))
        if language != "en":
            found = [translate_summary(run, language) for run in found]
        return FiniteJSONResponse({"runs": found})

    async def curves(self, request: Request) -> Response:
        name = request.path_params["name"]
        return FiniteJSONResponse(await self.workers.list(lambda: self.folder.curves(name)))

    async def view(self, request: Request) -> Response:
        name, view = request.path_params["name"], request.path_params["view"]
        if view not in VIEWS:
            raise UnknownError(Message("unknown view {name}", name=repr(view[:100])))
        body = await read_json(request, BODY)
        model = await self._model(request, name)
        if view in UNQUEUED:
            return FiniteJSONResponse(await self.workers.step(lambda: VIEWS[view](model, body)))
        turn = self.workers.report if view in REPORT_VIEWS else self.workers.look
        return FiniteJSONResponse(await turn(request, name, lambda: VIEWS[view](model, body)))

    async def alone(self, request: Request) -> Response:
        view = request.path_params["view"]
        if view not in STANDALONE_VIEWS:
            raise UnknownError(Message("unknown view {name}", name=repr(view[:100])))
        body = await read_json(request, BODY)
        if view in UNQUEUED:
            return FiniteJSONResponse(await self.workers.step(lambda: STANDALONE_VIEWS[view](body)))
        return FiniteJSONResponse(await self.workers.look(request, f"/{view}", lambda: STANDALONE_VIEWS[view](body)))

    async def xray(self, request: Request) -> Response:
        """Return the report as an HTML page for a frame."""
        name, language = request.path_params["name"], parse_language(request.query_params.get("language", "en"))
        model = await self._model(request, name)
        page = await self.workers.report(request, name, lambda: report_page(model, language))
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})

    async def generate(self, request: Request) -> Response:
        body = await read_json(request, BODY)
        model = await self._model(request, request.path_params["name"])
        pieces = await self.workers.step(lambda: generate(model, body))
        return await TextStream.begin(pieces, self.workers)

    async def _model(self, request: Request, name: str) -> LoadedModel:
        """Return the model of a run from memory, or load it."""
        kept = await self.workers.list(lambda: self.folder.kept(name))
        return kept if kept is not None else await self.workers.load(request, name, lambda: self.folder.open(name))


def answer_error(request: Request, error: Exception) -> Response:
    """Return the response to a request that ends in an error."""
    language = parse_language(request.headers.get("accept-language", ""))
    if isinstance(error, HTTPException):
        return refusal(error.status_code, translate(error.detail, language), plain_error, error.headers)
    text = without_folders(error_text(error), request.app.state.studio.folder.path)
    return refusal(status_of(error, 409), translate(text, language), plain_error)
