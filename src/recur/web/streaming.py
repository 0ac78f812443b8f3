"""JSON responses of any size, encoded and sent in pieces, so that other requests are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from recur.web.answers import encode

PIECE = 1 << 16
"""Bytes that are encoded and sent at a time; a shorter response is sent at once, with its length."""
ITEMS = 4096
"""Numbers of a list that are encoded at a time."""


class Encoded:
    """A JSON array that was encoded item by item; far smaller in memory than its items."""

    def __init__(self) -> None:
        self._content = bytearray()

    def extend(self, values: list[object]) -> None:
        if values:
            self._content += (b"," if self._content else b"") + encode(values)[1:-1]

    def pieces(self) -> Iterator[bytes]:
        yield b"["
        for k in range(0, len(self._content), PIECE):
            yield bytes(self._content[k : k + PIECE])
        yield b"]"


def json_pieces(content: object) -> Iterator[bytes]:
    """Encode JSON piece by piece: containers item by item, numbers and texts at once."""
    if isinstance(content, Encoded):
        yield from content.pieces()
    elif isinstance(content, dict) and any(map(_is_container, content.values())):
        for k, (name, value) in enumerate(content.items()):
            yield (b"," if k else b"{") + encode(str(name)) + b":"
            yield from json_pieces(value)
        yield b"}"
    elif isinstance(content, list | tuple) and any(map(_is_container, content)):
        for k, value in enumerate(content):
            yield b"," if k else b"["
            yield from json_pieces(value)
        yield b"]"
    elif isinstance(content, list | tuple) and len(content) > ITEMS:
        for k in range(0, len(content), ITEMS):
            yield (b"," if k else b"[") + encode(content[k : k + ITEMS])[1:-1]
        yield b"]"
    else:
        yield encode(content)


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list | tuple | Encoded)


def buffered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join pieces to buffers of at least PIECE bytes; the last one may be shorter."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        if len(buffer) >= PIECE:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


async def encode_fairly(content: object) -> bytes:
    """Encode JSON whole, with a pause for other requests after each piece."""
    found = bytearray()
    for piece in buffered(json_pieces(content)):
        found += piece
        await asyncio.sleep(0)
    return bytes(found)


def respond(content: object, status: int = 200, done: Callable[[], None] | None = None) -> Response:
    """A JSON response, in pieces if it is large; `done` is called once it was sent, or its client has left."""
    pieces = buffered(json_pieces(content))
    first = next(pieces)
    if len(first) >= PIECE or done is not None:
        return JsonStream(first, pieces, status, done)
    return Response(first, status, media_type="application/json")


class JsonStream(Response):
    """A response whose length is not known when it begins."""

    media_type = "application/json"

    def __init__(
        self, first: bytes, rest: Iterator[bytes], status: int = 200, done: Callable[[], None] | None = None
    ) -> None:
        super().__init__(first, status)
        self.rest, self.done = rest, done
        if len(first) >= PIECE:  # there may be more
            del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            for piece in self.rest:
                await asyncio.sleep(0)  # sending does not wait while the client reads; others have their turn here
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if self.done is not None:
                self.done()
