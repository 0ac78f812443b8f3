"""Server-sent events: a stream of JSON objects, no faster than its client reads and no longer than it stays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from anyio import CancelScope, create_task_group
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from recur.errors import RecurError
from recur.serve.errors import error_object, status_of
from recur.typedefs import JsonObject
from recur.web.answers import encode


class EventStream(Response):
    """`close` is told at the end whether all was sent."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[JsonObject], close: Callable[[bool], Awaitable[None]]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"  # a proxy that waits for more would undo the stream
        self.chunks, self.close = chunks, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        whole = False
        try:
            async with create_task_group() as group:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(watch)
                await self._write(send)
                whole = True
                group.cancel_scope.cancel()
        finally:
            with CancelScope(shield=True):
                await self.close(whole)

    async def _write(self, send: Send) -> None:
        async def event(content: bytes) -> None:
            await send({"type": "http.response.body", "body": b"data: " + content + b"\n\n", "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self.chunks:
                await event(encode(chunk))
            await event(b"[DONE]")
        except RecurError as error:
            await event(encode({"error": error_object(status_of(error), str(error))}))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
