"""Training API of the studio, and the server-sent events that report changes.

GET  /api/tasks                  every task and its options, in the language of the request
GET  /api/train                  the queue, the uploaded texts, and the limits
POST /api/train                  {task, text, options, name, keep}: add a training job
POST /api/train/NAME/VERB        stop, resume {minutes | steps | epochs, keep}, remove, keep {keep}
PUT  /api/texts/NAME             upload a text; the response has the task it is for (?keep=0: do not store it)
POST /api/texts/NAME             the same for a stored text
POST /api/runs/NAME/notes        {text}
GET  /api/watch?run=NAME         changes, as server-sent events:

{"jobs": […]}                       the queue of jobs, when it has changed
{"runs": […], "gone": ["name"]}     summaries that have changed, and runs that were deleted
{"points": {"name": […]}}           new points of the watched runs
{"again": ["name"]}                 a run was resumed from a checkpoint: its curve starts again
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from recur.errors import OptionError
from recur.i18n import Language, Message, translate
from recur.serve.http import (
    BusyError,
    FiniteJSONResponse,
    ForbiddenError,
    RequestModel,
    UnknownError,
    encode_json,
    read_json,
    run_while_connected,
    validate,
)
from recur.studio import jobs as schema
from recur.studio.jobs import TrainingJob, TrainingQueue
from recur.studio.reports import parse_language
from recur.studio.runs import RunFolder
from recur.studio.uploads import BUILT_IN, MAX_TEXT_BYTES, TextStore
from recur.studio.workers import WorkerPool
from recur.tasks import task_names
from recur.utils.types import JsonObject

EVERY = 0.2
"""Seconds between two checks of running jobs."""
LIST = 10
"""Every so many checks, all runs are checked."""
SLACK = 5.0
"""Seconds before the first check after which a changed run is news: the page has read the list before."""
WATCHERS = 32
WATCHED = 64
"""Runs that one page watches."""
ALIVE = 75
"""Checks without news after which a comment line keeps the connection alive."""


class ChangeStream(Response):
    """Stream of server-sent events for one page.

    The next check runs after the last event was sent: a page that does not read gets fewer events, not a growing queue.
    """

    media_type = "text/event-stream"
    open = 0

    def __init__(
        self,
        folder: RunFolder,
        queue: TrainingQueue,
        workers: WorkerPool,
        names: Sequence[str],
        language: Language = "en",
    ) -> None:
        if ChangeStream.open >= WATCHERS:
            raise BusyError(Message("{n} pages are watching already; close one of them", n=WATCHERS))
        super().__init__()
        del self.headers["content-length"]
        self.folder, self.queue, self.workers, self.language = folder, queue, workers, language
        self.names = list(dict.fromkeys(names))[:WATCHED]
        self._known: dict[str, str] = {}
        self._said = ""
        self._live: list[str] = []
        self._sent: dict[str, tuple[int, int]] = {}
        self._looks, self._since = 0, time.time() - SLACK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ChangeStream.open += 1
        try:
            await run_while_connected(receive, lambda: self._write(send))
        except ClientDisconnect:
            pass
        finally:
            ChangeStream.open -= 1

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        quiet = 0
        while True:
            news = await self.workers.list(self.look)
            quiet = 0 if news else quiet + 1
            body = b"data: " + encode_json(news) + b"\n\n" if news else b":\n\n" if quiet % ALIVE == 0 else b""
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await anyio.sleep(EVERY)

    def look(self) -> JsonObject:
        """Return the changes since the last check."""
        return {**self._jobs(), **self._runs(), **self._points()}

    def _jobs(self) -> JsonObject:
        jobs = self.queue.jobs(self.language)
        said = json.dumps(jobs)
        if said == self._said:
            return {}
        self._said = said
        return {"jobs": jobs}

    def _runs(self) -> JsonObject:
        self._looks += 1
        whole = self._looks % LIST == 1
        if whole:
            runs = {run["name"]: run for run in self.folder.list(seconds=0) if "pending" not in run}
        else:
            runs = {name: self.folder.summary(name) for name in self._live}
        self._live = [name for name, run in runs.items() if run.get("live")]
        told = {name: json.dumps(run) for name, run in runs.items()}
        changed = [
            runs[name] for name, text in told.items() if self._known.get(name) != text and self._is_news(runs[name])
        ]
        gone = [name for name in self._known if name not in told] if whole else []
        first, self._known = not self._known, (told if whole else self._known | told)
        found = {"runs": changed, "gone": gone}
        return {} if first and self._looks == 1 else {name: value for name, value in found.items() if value}

    def _is_news(self, run: JsonObject) -> bool:
        """Return True for a changed run, not for one that was only read for the first time."""
        return bool(run["name"] in self._known or run.get("live") or run.get("changed", 0.0) >= self._since)

    def _points(self) -> JsonObject:
        points, again = {}, []
        for name in self.names:
            tail = self.folder.tail(name)
            now = tail.update()
            begun, known = self._sent.get(name, (tail.begun, len(now)))
            if begun != tail.begun:
                again.append(name)
            elif len(now) > known:
                points[name] = now[known:]
            self._sent[name] = tail.begun, len(now)
        return {name: value for name, value in (("points", points), ("again", again)) if value}


BODY = 64 * 1024
"""Bytes of a JSON request."""
PIECE = 1 << 20
"""Bytes of an upload that are written at a time."""


class KeepRequest(RequestModel):
    """Whether a job runs on when the studio ends."""

    keep: bool = False


class TrainRequest(KeepRequest):
    """Training job: a task, a text, options and a name."""

    name: str = ""
    task: str = ""
    text: str = ""
    options: dict[str, Any] = {}


class NotesRequest(RequestModel):
    """Notes on a run."""

    text: str = ""


class TrainingHandlers:
    """Handlers of the training routes."""

    def __init__(self, folder: RunFolder, workers: WorkerPool, read_only: bool = False) -> None:
        self.folder, self.workers, self.read_only = folder, workers, read_only
        self.texts = TextStore(folder.path)
        if not read_only:
            self.texts.sweep()
        self.queue = TrainingQueue(folder.path, self.texts)

    def routes(self) -> list[Route]:
        return [
            Route("/api/tasks", self.tasks),
            Route("/api/watch", self.watch),
            Route("/api/train", self.jobs),
            Route("/api/train", self.add, methods=["POST"]),
            Route("/api/train/{name}/{verb}", self.change, methods=["POST"]),
            Route("/api/texts/{name}", self.receive, methods=["PUT"]),
            Route("/api/texts/{name}", self.look, methods=["POST"]),
            Route("/api/runs/{name}/notes", self.notes, methods=["POST"]),
        ]

    async def tasks(self, request: Request) -> Response:
        language = request_language(request)
        return FiniteJSONResponse({"tasks": await self.workers.list(lambda: schema.describe_tasks(language))})

    async def watch(self, request: Request) -> Response:
        language = parse_language(request.query_params.get("language", ""))  # an event source has no header for it
        return ChangeStream(self.folder, self.queue, self.workers, request.query_params.getlist("run"), language)

    async def jobs(self, request: Request) -> Response:
        texts = await self.workers.list(self.texts.list)
        limits = {"text": MAX_TEXT_BYTES}
        return FiniteJSONResponse(
            {
                "jobs": self.queue.jobs(request_language(request)),
                "texts": texts,
                "built_in": list(BUILT_IN),
                "limits": limits,
                "read_only": self.read_only,
            }
        )

    async def add(self, request: Request) -> Response:
        self._check_allowed()
        body = await read_json(request, BODY)
        given = validate(TrainRequest, body)
        if given.task not in task_names():
            raise OptionError(Message("unknown task {name}", name=repr(given.task[:60])))
        job = TrainingJob(given.name, given.task, given.text, given.options, keep=given.keep)
        return FiniteJSONResponse({"name": (await self.workers.list(lambda: self.queue.add(job))).name})

    async def change(self, request: Request) -> Response:
        self._check_allowed()
        name, verb = request.path_params["name"], request.path_params["verb"]
        body = await read_json(request, BODY)
        keep = validate(KeepRequest, body).keep
        more: JsonObject = {key: value for key, value in body.items() if key != "keep"}
        verbs: Mapping[str, Callable[[], object]] = {
            "stop": lambda: self.queue.stop(name),
            "resume": lambda: self.queue.resume(name, more, keep),
            "remove": lambda: self.queue.remove(name),
            "keep": lambda: self.queue.keep(name, keep),
        }
        if verb not in verbs:
            raise UnknownError(Message("unknown request {name}", name=repr(verb[:60])))
        await self.workers.list(verbs[verb])
        return FiniteJSONResponse({"jobs": self.queue.jobs(request_language(request))})

    async def receive(self, request: Request) -> Response:
        """Store an upload chunk by chunk; memory holds one chunk."""
        self._check_allowed()
        language = request_language(request)
        declared = int(request.headers.get("content-length", 0))  # h11 has checked that it is a number
        with self.texts.receiving(request.path_params["name"], declared) as text:
            piece = bytearray()
            async for chunk in request.stream():
                piece += chunk
                if len(piece) >= PIECE:
                    written = bytes(piece)
                    piece.clear()
                    await self.workers.list(lambda written=written: text.write(written))  # type: ignore[misc]
            await self.workers.list(lambda: text.write(bytes(piece)))
        keep = False
        try:
            found = await self.workers.list(lambda: self._looked(text.name, language))
            keep = request.query_params.get("keep") != "0"
        finally:
            if text.new and not keep:  # it cannot be read, or was only to be recognised
                self.texts.remove(text.name)
        return FiniteJSONResponse(found)

    async def look(self, request: Request) -> Response:
        name, language = request.path_params["name"], request_language(request)
        return FiniteJSONResponse(await self.workers.list(lambda: self._looked(name, language)))

    def _looked(self, name: str, language: Language) -> JsonObject:
        found = self.texts.look(name)
        found["why"] = translate(found["why"], language)
        for choice in found["choices"]:
            choice["what"] = translate(choice["what"], language)
        return found

    async def notes(self, request: Request) -> Response:
        self._check_allowed()
        name, given = request.path_params["name"], validate(NotesRequest, await read_json(request, BODY))
        await self.workers.list(lambda: self.folder.write_notes(name, given.text))
        return FiniteJSONResponse({})

    def _check_allowed(self) -> None:
        if self.read_only:
            raise ForbiddenError(Message("this studio shows runs and trains none: it was started with --read-only"))


def request_language(request: Request) -> Language:
    return parse_language(request.headers.get("accept-language", ""))
