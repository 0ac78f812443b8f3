"""What the page asks of training: texts to learn from, jobs, runs to go on with, notes.

GET  /api/tasks                  every task and its options, in the language of the request
GET  /api/train                  the queue, the texts that are there, and the limits
POST /api/train                  {task, text, options, name, keep}: a training behind those that wait
POST /api/train/NAME/VERB        stop, resume {minutes | steps | epochs, keep}, remove, keep {keep}
PUT  /api/texts/NAME             a text, as it is, piece by piece to disk; which task it is for (?keep=0: only that)
POST /api/texts/NAME             … of one that is there
POST /api/runs/NAME/notes        {text}
GET  /api/watch?run=NAME         what changes, as server-sent events
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recur.errors import OptionError
from recur.studio import schema
from recur.studio.folder import Folder
from recur.studio.job import Job
from recur.studio.queue import Queue
from recur.studio.reporting import language_of
from recur.studio.texts import BUILT_IN, TEXT, Texts
from recur.studio.turns import Turns
from recur.studio.watch import Watch
from recur.tasks import task_names
from recur.typedefs import JsonObject
from recur.web.answers import Answer, ForbiddenError, UnknownError
from recur.web.body import read_json
from recur.web.fields import field
from recur.wording import Language, in_language

BODY = 64 * 1024
"""Bytes of a request that is no text, at most."""
PIECE = 1 << 20
"""Bytes of a text that are written at once."""


class Training:
    """The handlers."""

    def __init__(self, folder: Folder, turns: Turns, read_only: bool = False) -> None:
        self.folder, self.turns, self.read_only = folder, turns, read_only
        self.texts = Texts(folder.path)
        if not read_only:
            self.texts.sweep()
        self.queue = Queue(folder.path, self.texts)

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
        language = asked_language(request)
        return Answer({"tasks": await self.turns.list(lambda: schema.tasks(language))})

    async def watch(self, request: Request) -> Response:
        language = language_of(request.query_params.get("language", ""))  # an event source has no header for it
        return Watch(self.folder, self.queue, self.turns, request.query_params.getlist("run"), language)

    async def jobs(self, request: Request) -> Response:
        texts = await self.turns.list(self.texts.list)
        limits = {"text": TEXT}
        return Answer(
            {
                "jobs": self.queue.jobs(asked_language(request)),
                "texts": texts,
                "built_in": list(BUILT_IN),
                "limits": limits,
                "read_only": self.read_only,
            }
        )

    async def add(self, request: Request) -> Response:
        self._check_allowed()
        body = await read_json(request, BODY)
        task, options = field(body, "task", ""), body.get("options", {})
        if task not in task_names():
            raise OptionError(f"unknown task {task[:60]!r}")
        if not isinstance(options, dict):
            raise OptionError("options must be a JSON object")
        job = Job(field(body, "name", ""), task, field(body, "text", ""), options, keep=_switch(body, "keep"))
        return Answer({"name": (await self.turns.list(lambda: self.queue.add(job))).name})

    async def change(self, request: Request) -> Response:
        self._check_allowed()
        name, verb = request.path_params["name"], request.path_params["verb"]
        body = await read_json(request, BODY)
        keep = _switch(body, "keep")
        more: JsonObject = {key: value for key, value in body.items() if key != "keep"}
        verbs: Mapping[str, Callable[[], object]] = {
            "stop": lambda: self.queue.stop(name),
            "resume": lambda: self.queue.resume(name, more, keep),
            "remove": lambda: self.queue.remove(name),
            "keep": lambda: self.queue.keep(name, keep),
        }
        if verb not in verbs:
            raise UnknownError(f"unknown request {verb[:60]!r}")
        await self.turns.list(verbs[verb])
        return Answer({"jobs": self.queue.jobs(asked_language(request))})

    async def receive(self, request: Request) -> Response:
        """A text on its way to disk, never more of it in memory than a piece."""
        self._check_allowed()
        language = asked_language(request)
        with self.texts.receiving(request.path_params["name"]) as text:
            piece = bytearray()
            async for chunk in request.stream():
                piece += chunk
                if len(piece) >= PIECE:
                    written = bytes(piece)
                    piece.clear()
                    await self.turns.list(lambda written=written: text.write(written))  # type: ignore[misc]
            await self.turns.list(lambda: text.write(bytes(piece)))
        keep = False
        try:
            found = await self.turns.list(lambda: self._looked(text.name, language))
            keep = request.query_params.get("keep") != "0"
        finally:
            if text.new and not keep:  # it cannot be read, or was only to be looked at
                self.texts.remove(text.name)
        return Answer(found)

    async def look(self, request: Request) -> Response:
        name, language = request.path_params["name"], asked_language(request)
        return Answer(await self.turns.list(lambda: self._looked(name, language)))

    def _looked(self, name: str, language: Language) -> JsonObject:
        found = self.texts.look(name)
        found["why"] = in_language(found["why"], language)
        for choice in found["choices"]:
            choice["what"] = in_language(choice["what"], language)
        return found

    async def notes(self, request: Request) -> Response:
        self._check_allowed()
        name, body = request.path_params["name"], await read_json(request, BODY)
        await self.turns.list(lambda: self.folder.write_notes(name, field(body, "text", "")))
        return Answer({})

    def _check_allowed(self) -> None:
        if self.read_only:
            raise ForbiddenError("this studio shows runs and trains none: it was started with --read-only")


def asked_language(request: Request) -> Language:
    return language_of(request.headers.get("accept-language", ""))


def _switch(body: JsonObject, name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise OptionError(f"{name} must be true or false")
    return value
