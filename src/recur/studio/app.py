"""The application: the page's files, and JSON for its views."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from recur.errors import RecurError
from recur.i18n import Message, translate
from recur.serve.http.answers import Answer, UnknownError, error_text, refusal, status_of, without_folders
from recur.serve.http.body import read_json
from recur.serve.http.guard import LOOPBACK
from recur.studio.folder import Folder
from recur.studio.guard import Guard
from recur.studio.loaded import LoadedModel
from recur.studio.reporting import POLICY, language_of, report_page
from recur.studio.stream import Stream
from recur.studio.summaries import in_language
from recur.studio.training import Training
from recur.studio.turns import Turns
from recur.studio.views import ALONE, QUICK, REPORTS, VIEWS
from recur.studio.writing import generate

PAGE = Path(__file__).parent / "page"
FILES = {path.name: path for path in PAGE.iterdir() if path.is_file()}
"""All that can be had of the page: a name is looked up, and no path is made of it."""
STYLES = (
    *("style", "curves", "runs", "train", "write", "predict", "see"),
    *("gradients", "saliency", "step", "xray", "labs"),
)
"""Style sheets in the order in which they apply; the page asks for all of them at once, as styles.css."""
BODY = 64 * 1024
"""Bytes of a request, at most."""
FIRST = 0.2
"""Seconds for reading runs before the list of them is sent with what is known."""
REST = 2.0
"""… where somebody has that already and asks for the rest: fewer and larger answers."""


def make_app(
    folder: Path,
    token: str,
    hosts: tuple[str, ...] | None = LOOPBACK,
    trust: bool = False,
    read_only: bool = False,
) -> Guard:
    """The studio over a folder of runs, as an ASGI application."""
    studio = Studio(Folder(folder, trust), read_only)
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
    return Guard(app, token, hosts)


def end_training(app: Guard) -> str:
    """Save and stop what trains, unless it is to be kept; its name, if something was stopped."""
    assert isinstance(app.app, Starlette)
    studio: Studio = app.app.state.studio
    return studio.training.queue.close()


class Studio:
    """The handlers of the routes."""

    def __init__(self, folder: Folder, read_only: bool = False) -> None:
        self.folder = folder
        self.turns = Turns()
        self.training = Training(folder, self.turns, read_only)

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
            found = await self.turns.rest(lambda: self.folder.list(REST, first))
        else:
            found = await self.turns.list(lambda: self.folder.list(FIRST, first))
        language = language_of(request.headers.get("accept-language", ""))
        if language != "en":
            return Answer({"runs": [in_language(run, language) for run in found]})
        return Answer({"runs": found})

    async def curves(self, request: Request) -> Response:
        name = request.path_params["name"]
        return Answer(await self.turns.list(lambda: self.folder.curves(name)))

    async def view(self, request: Request) -> Response:
        name, view = request.path_params["name"], request.path_params["view"]
        if view not in VIEWS:
            raise UnknownError(Message("unknown view {name}", name=repr(view[:100])))
        body = await read_json(request, BODY)
        model = await self._model(request, name)
        if view in QUICK:
            return Answer(await self.turns.step(lambda: VIEWS[view](model, body)))
        turn = self.turns.report if view in REPORTS else self.turns.look
        return Answer(await turn(request, name, lambda: VIEWS[view](model, body)))

    async def alone(self, request: Request) -> Response:
        view = request.path_params["view"]
        if view not in ALONE:
            raise UnknownError(Message("unknown view {name}", name=repr(view[:100])))
        body = await read_json(request, BODY)
        if view in QUICK:
            return Answer(await self.turns.step(lambda: ALONE[view](body)))
        return Answer(await self.turns.look(request, f"/{view}", lambda: ALONE[view](body)))

    async def xray(self, request: Request) -> Response:
        """The report, as a page for a frame of ours."""
        name, language = request.path_params["name"], language_of(request.query_params.get("language", "en"))
        model = await self._model(request, name)
        page = await self.turns.report(request, name, lambda: report_page(model, language))
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})

    async def generate(self, request: Request) -> Response:
        body = await read_json(request, BODY)
        model = await self._model(request, request.path_params["name"])
        pieces = await self.turns.step(lambda: generate(model, body))
        return await Stream.begin(pieces, self.turns)

    async def _model(self, request: Request, name: str) -> LoadedModel:
        """A run's model: in memory, or loaded when it is its turn."""
        kept = await self.turns.list(lambda: self.folder.kept(name))
        return kept if kept is not None else await self.turns.load(request, name, lambda: self.folder.open(name))


def answer_error(request: Request, error: Exception) -> Response:
    """The handler of every error that a request may end in."""
    language = language_of(request.headers.get("accept-language", ""))
    if isinstance(error, HTTPException):
        return refusal(error.status_code, translate(error.detail, language), dict(error.headers or {}))
    status = status_of(error)
    headers = {"Retry-After": "1"} if status == 503 else None
    text = without_folders(error_text(error), request.app.state.studio.folder.path)
    return refusal(status, translate(text, language), headers)
