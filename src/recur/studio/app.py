"""The server: the page's files, and JSON for its views.

Models run in threads. What takes long for one run waits in that run's own line, so that others go on meanwhile.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from recur.errors import RecurError, RunError, ShapeError
from recur.studio.folder import Folder
from recur.studio.guard import LOOPBACK, Guard
from recur.studio.views import VIEWS, write

PAGE = Path(__file__).parent / "page"
BODY = 64 * 1024
"""Bytes of a request, at most."""
QUICK = "next"
"""The view that needs no line of its own: one step of a model that nothing else changes."""


class TooLargeError(RecurError):
    """A request with more than is read."""


def make_app(folder: Path, token: str | None = None, hosts: tuple[str, ...] = LOOPBACK, own_cells: bool = False) -> Any:
    """The studio over a folder of runs, as an ASGI application."""
    studio = Studio(Folder(folder, own_cells))
    routes = [
        Route("/", studio.page),
        Route("/api/runs", studio.runs),
        Route("/api/runs/{name}", studio.curves),
        Route("/api/runs/{name}/write", studio.write, methods=["POST"]),
        Route("/api/runs/{name}/{view}", studio.view, methods=["POST"]),
        Mount("/page", StaticFiles(directory=PAGE)),
    ]
    app = Starlette(routes=routes, exception_handlers={RecurError: refused})
    return Guard(app, hosts, token)


def refused(request: Request, error: Exception) -> Response:
    status = 413 if isinstance(error, TooLargeError) else 404 if isinstance(error, RunError) else 400
    return JSONResponse({"error": " ".join(str(error).split())}, status)


class Studio:
    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.lines: defaultdict[str, CapacityLimiter] = defaultdict(lambda: CapacityLimiter(1))

    async def page(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def runs(self, request: Request) -> Response:
        return JSONResponse({"runs": await to_thread.run_sync(self.folder.list)})

    async def curves(self, request: Request) -> Response:
        return JSONResponse(await to_thread.run_sync(self.folder.curves, request.path_params["name"]))

    async def view(self, request: Request) -> Response:
        name, view = request.path_params["name"], request.path_params["view"]
        if view not in VIEWS:
            raise RunError(f"there is no view {view!r}")
        asked = await read_json(request)

        def look() -> dict[str, Any]:
            return VIEWS[view](self.folder.open(name), asked)

        self.folder.at(name)  # before a line is made for it
        line = None if view == QUICK else self.lines[name]
        return JSONResponse(await to_thread.run_sync(look, limiter=line))

    async def write(self, request: Request) -> Response:
        asked = await read_json(request)
        name = request.path_params["name"]
        pieces = await to_thread.run_sync(lambda: write(self.folder.open(name), asked))

        async def stream() -> AsyncIterator[str]:
            async for piece in iterate_in_threadpool(pieces):
                yield piece
                await anyio.sleep(0)

        return StreamingResponse(stream(), media_type="text/plain; charset=utf-8")


async def read_json(request: Request) -> dict[str, Any]:
    """The body, if it is small enough and an object."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise ShapeError("a request's body is application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY:
            raise TooLargeError(f"a request may have {BODY:,} bytes")
    try:
        asked = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise ShapeError("a request's body is one JSON object")
    return asked
