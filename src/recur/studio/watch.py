"""What changes while somebody looks, as server-sent events: jobs, runs, and the points of curves as they are measured.

{"jobs": […]}                       the queue of trainings, when it has changed
{"runs": […], "gone": ["name"]}     summaries that have changed, and runs that are no more
{"points": {"name": […]}}           new points of the runs that are watched
{"again": ["name"]}                 a run went on from a checkpoint: its curve is another one
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from recur.i18n import Language, Message
from recur.serve.http.answers import BusyError, encode
from recur.studio.folder import Folder
from recur.studio.queue import Queue
from recur.studio.summaries import in_language
from recur.studio.turns import Turns
from recur.utils.types import JsonObject

EVERY = 0.2
"""Seconds between looks at what is live."""
LIST = 10
"""Of so many looks, one is at all runs."""
SLACK = 5.0
"""Seconds before the first look from which on a run is new: who watches has read the list before."""
WATCHERS = 32
WATCHED = 64
"""Runs, by one watcher."""
ALIVE = 75
"""Looks without news, after which a line says that the connection is."""


class Watch(Response):
    """Events for one page, until it is left."""

    media_type = "text/event-stream"
    open = 0

    def __init__(
        self, folder: Folder, queue: Queue, turns: Turns, names: Sequence[str], language: Language = "en"
    ) -> None:
        if Watch.open >= WATCHERS:
            raise BusyError(Message("{n} pages are watching already; close one of them", n=WATCHERS))
        super().__init__()
        del self.headers["content-length"]
        self.folder, self.queue, self.turns, self.language = folder, queue, turns, language
        self.names = list(dict.fromkeys(names))[:WATCHED]
        self._known: dict[str, str] = {}
        self._said = ""
        self._live: list[str] = []
        self._sent: dict[str, tuple[int, int]] = {}
        self._looks, self._since = 0, time.time() - SLACK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        Watch.open += 1
        try:
            async with anyio.create_task_group() as group:

                async def leave() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(leave)
                await self._write(send)
        finally:
            Watch.open -= 1

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        quiet = 0
        while True:
            news = await self.turns.list(self.look)
            quiet = 0 if news else quiet + 1
            body = b"data: " + encode(news) + b"\n\n" if news else b":\n\n" if quiet % ALIVE == 0 else b""
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await anyio.sleep(EVERY)

    def look(self) -> JsonObject:
        """What is new since the last look."""
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
            in_language(runs[name], self.language)
            for name, text in told.items()
            if self._known.get(name) != text and self._is_news(runs[name])
        ]
        gone = [name for name in self._known if name not in told] if whole else []
        first, self._known = not self._known, (told if whole else self._known | told)
        found = {"runs": changed, "gone": gone}
        return {} if first and self._looks == 1 else {name: value for name, value in found.items() if value}

    def _is_news(self, run: JsonObject) -> bool:
        """And not merely a run that was read for the first time."""
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
