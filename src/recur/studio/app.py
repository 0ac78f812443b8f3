"""The server: the page's files, and JSON for its views.

Models run in worker threads. Slow views of one run queue behind each other, so that other runs are not blocked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from recur.errors import OptionError, RecurError, RunError
from recur.studio.folder import Folder
from recur.studio.guard import LOOPBACK, Guard
from recur.studio.views import VIEWS, generate
from recur.typedefs import JsonObject

PAGE = Path(__file__).parent / "page"
BODY = 64 * 1024
"""Bytes of a request, at most."""
QUICK = "next"
"""The view that does not queue: one step of a model that nothing else changes."""


class TooLargeError(RecurError):
    """A request body above the limit."""


def make_app(
    folder: Path, token: str | None = None, hosts: tuple[str, ...] = LOOPBACK, own_cells: bool = False
) -> Guard:
    """The studio over a folder of runs, as an ASGI application."""
    studio = Studio(Folder(folder, own_cells))
    routes = [
        Route("/", studio.page),
        Route("/api/runs", studio.runs),
        Route("/api/runs/{name}", studio.curves),
        Route("/api/runs/{name}/generate", studio.generate, methods=["POST"]),
        Route("/api/runs/{name}/{view}", studio.view, methods=["POST"]),
        Mount("/page", StaticFiles(directory=PAGE)),
    ]
    app = Starlette(routes=routes, exception_handlers={RecurError: error_response})
    return Guard(app, hosts, token)


def error_response(request: Request, error: Exception) -> Response:
    status = 413 if isinstance(error, TooLargeError) else 404 if isinstance(error, RunError) else 400
    return JSONResponse({"error": " ".join(str(error).split())}, status)


class Studio:
    """The handlers of the routes."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.limiters: defaultdict[str, CapacityLimiter] = defaultdict(lambda: CapacityLimiter(1))
        """One at a time for each run."""

    async def page(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def runs(self, request: Request) -> Response:
        return JSONResponse({"runs": await to_thread.run_sync(self.folder.list)})

    async def curves(self, request: Request) -> Response:
        return JSONResponse(await to_thread.run_sync(self.folder.curves, request.path_params["name"]))

    async def view(self, request: Request) -> Response:
        name, view = request.path_params["name"], request.path_params["view"]
        if view not in VIEWS:
            raise RunError(f"unknown view {view!r}")
        body = await read_json(request)

        def compute() -> JsonObject:
            return VIEWS[view](self.folder.open(name), body)

        self.folder.path_of(name)  # before a limiter is made for it
        limiter = None if view == QUICK else self.limiters[name]
        return JSONResponse(await to_thread.run_sync(compute, limiter=limiter))

    async def generate(self, request: Request) -> Response:
        body = await read_json(request)
        name = request.path_params["name"]
        pieces = await to_thread.run_sync(lambda: generate(self.folder.open(name), body))

        async def stream() -> AsyncIterator[str]:
            async for piece in iterate_in_threadpool(pieces):
                yield piece
                await anyio.sleep(0)

        return StreamingResponse(stream(), media_type="text/plain; charset=utf-8")


async def read_json(request: Request) -> JsonObject:
    """The body of a request, if it is small enough and a JSON object."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise OptionError("Content-Type must be application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY:
            raise TooLargeError(f"request body too large: at most {BODY:,} bytes")
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise OptionError("the request body must be a JSON object")
    return content
