"""Text that is sent as it is generated, and no longer than somebody reads it."""

from __future__ import annotations

from collections.abc import Generator

from anyio import create_task_group
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from recur.errors import RecurError
from recur.i18n import Message
from recur.serve.http.answers import BusyError
from recur.studio.turns import STREAMS, Turns

Pieces = Generator[str, None, None]


class Stream(Response):
    """The pieces of a text as a response. The next one is drawn when the last was taken; once the client is gone, none.

    An error on the way cuts the response off where it is, which every client can tell from its end.
    """

    media_type = "text/plain"

    def __init__(self, first: str, rest: Pieces, turns: Turns) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.first, self.rest, self.turns = first, rest, turns

    @classmethod
    async def begin(cls, pieces: Pieces, turns: Turns) -> Stream:
        """Draw the first piece: what is wrong from the start is an error, and not half a text."""
        if turns.streams >= STREAMS:
            raise BusyError(Message("{n} texts are being generated already; try again in a moment", n=STREAMS))
        return cls(await turns.step(lambda: next(pieces, "")), pieces, turns)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.turns.streams += 1
        try:
            async with create_task_group() as group:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(watch)
                await self._write(send)
                group.cancel_scope.cancel()
        finally:
            self.turns.streams -= 1
            self.rest.close()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        piece: str | None = self.first
        while piece is not None:
            if piece:
                body = piece.encode("utf-8", "replace")
                await send({"type": "http.response.body", "body": body, "more_body": True})
            try:
                piece = await self.turns.step(lambda: next(self.rest, None))
            except RecurError:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
