"""JSON responses with finite numbers, sent in chunks if they are large; errors of one line without folder names."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from recur.errors import OptionError, RecurError, TextError

FOLDERS = re.compile(r"""(?<![\w./~-])/(?:[^\s/'":,;]+/)+""")
"""Folders of an absolute path."""
MAX_ERROR_CHARS = 500
"""Characters of an error message."""


class TooLargeError(RecurError):
    """Error of a request body above the limit."""


class UnknownError(RecurError):
    """Error of a name that does not exist."""


class ForbiddenError(RecurError):
    """Error of a request that this server does not permit."""


class BusyError(RecurError):
    """Error of a server with too many requests in progress."""


class GoneError(RecurError):
    """Error of a request that continues a text which is no longer cached; the client must send the whole text."""


STATUS = {
    TooLargeError: 413,
    UnknownError: 404,
    ForbiddenError: 403,
    BusyError: 503,
    GoneError: 410,
    OptionError: 400,
    TextError: 400,
}
"""Status code of each error; 409 for any other, which is an error of the run and not of the request."""


class FiniteJSONResponse(JSONResponse):
    """JSON response with null in place of numbers that are not finite."""

    def render(self, content: object) -> bytes:
        return encode_json(content)


def encode_json(content: object) -> bytes:
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:  # NaN or infinity; rare, so that it is replaced only after a failure
        text = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")  # an unpaired surrogate becomes \udc80, which is valid JSON


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def error_json(text: str) -> bytes:
    """Return the body of an error response, with its text in one line."""
    text = " ".join(text.split())
    return encode_json({"error": text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"})


def refusal(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(error_json(text), status, headers, "application/json")


def without_folders(text: str, folder: Path) -> str:
    """Return an error text without folders: clients on other machines may see names of files, not their locations."""
    for base in {str(folder), str(folder.absolute()), str(folder.resolve())} - {"."}:
        text = text.replace(f"{base}/", "").replace(base, folder.name)
    return FOLDERS.sub("", text)


def error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        named = f": {error.filename}" if error.filename else ""
        return f"a file cannot be read: {error.strerror}{named}"
    return str(error)


def status_of(error: Exception) -> int:
    """Return the status code of the response to an error."""
    return next((code for kind, code in STATUS.items() if isinstance(error, kind)), 409)


CHUNK = 1 << 16
"""Bytes that are encoded and sent at a time; a shorter response is sent whole, with Content-Length."""
ITEMS = 4096
"""Items of a list that are encoded at a time."""


class EncodedArray:
    """JSON array that is encoded as it grows; far smaller in memory than its items."""

    def __init__(self) -> None:
        self._content = bytearray()

    def extend(self, values: list[object]) -> None:
        if values:
            self._content += (b"," if self._content else b"") + encode_json(values)[1:-1]

    def pieces(self) -> Iterator[bytes]:
        yield b"["
        for k in range(0, len(self._content), CHUNK):
            yield bytes(self._content[k : k + CHUNK])
        yield b"]"


def json_pieces(content: object) -> Iterator[bytes]:
    """Encode JSON piece by piece: containers item by item, numbers and texts at once."""
    if isinstance(content, EncodedArray):
        yield from content.pieces()
    elif isinstance(content, dict) and any(map(_is_container, content.values())):
        for k, (name, value) in enumerate(content.items()):
            yield (b"," if k else b"{") + encode_json(str(name)) + b":"
            yield from json_pieces(value)
        yield b"}"
    elif isinstance(content, list | tuple) and any(map(_is_container, content)):
        for k, value in enumerate(content):
            yield b"," if k else b"["
            yield from json_pieces(value)
        yield b"]"
    elif isinstance(content, list | tuple) and len(content) > ITEMS:
        for k in range(0, len(content), ITEMS):
            yield (b"," if k else b"[") + encode_json(content[k : k + ITEMS])[1:-1]
        yield b"]"
    else:
        yield encode_json(content)


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list | tuple | EncodedArray)


def buffered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join pieces to buffers of at least PIECE bytes; the last one may be shorter."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        if len(buffer) >= CHUNK:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


async def encode_fairly(content: object) -> bytes:
    """Encode JSON; let other requests run after each chunk."""
    found = bytearray()
    for piece in buffered(json_pieces(content)):
        found += piece
        await asyncio.sleep(0)
    return bytes(found)


def json_response(content: object, status: int = 200, done: Callable[[], None] | None = None) -> Response:
    """Return a JSON response, in chunks if it is large; call `done` when it was sent or its client disconnected."""
    pieces = buffered(json_pieces(content))
    first = next(pieces)
    if len(first) >= CHUNK or done is not None:
        return JsonStream(first, pieces, status, done)
    return Response(first, status, media_type="application/json")


class JsonStream(Response):
    """Response whose length is not known when it starts."""

    media_type = "application/json"

    def __init__(
        self, first: bytes, rest: Iterator[bytes], status: int = 200, done: Callable[[], None] | None = None
    ) -> None:
        super().__init__(first, status)
        self.rest, self.done = rest, done
        if len(first) >= CHUNK:  # more chunks may follow
            del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            for piece in self.rest:
                await asyncio.sleep(0)  # send() does not wait while the client reads; other requests run here
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if self.done is not None:
                self.done()
