"""Responses in OpenAI's form: errors, and streams of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from anyio import CancelScope
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from recur.errors import OptionError, RecurError, TextError
from recur.serve.http.requests import run_while_connected
from recur.serve.http.responses import MAX_ERROR_CHARS, BusyError, TooLargeError, UnknownError, encode_json
from recur.utils.types import JsonObject


class ConflictError(RecurError):
    """Error of a request for a session that another request uses."""


class RateError(RecurError):
    """Error of too many requests with one token."""


STATUS: dict[type[Exception], int] = {
    TooLargeError: 413,
    UnknownError: 404,
    BusyError: 503,
    RateError: 429,
    ConflictError: 409,
    OptionError: 400,
    TextError: 400,
}
"""Status code of each error; 500 for any other."""
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 503: "overloaded_error"}


def status_of(error: Exception) -> int:
    """Return the status code of the response to an error."""
    return next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)


def error_object(status: int, text: str) -> dict[str, object]:
    """Return an error in OpenAI's form, with its text in one line."""
    text = " ".join(text.split())
    text = text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = "model_not_found" if status == 404 and text.startswith("the model ") else None
    return {"message": text, "type": kind, "param": None, "code": code}


def error_body(status: int, text: str) -> bytes:
    return encode_json({"error": error_object(status, text)})


def refusal(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    headers = {"Retry-After": "1", **(headers or {})} if status in (429, 503) else headers
    headers = {"WWW-Authenticate": "Bearer", **(headers or {})} if status == 401 else headers
    return Response(error_body(status, text), status, headers, "application/json")


class EventStream(Response):
    """Stream of JSON objects as server-sent events.

    The next chunk is made when the last one was sent: a slow client slows its own stream down. `close` is called at the
    end with True if everything was sent, False if the client disconnected.
    """

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[JsonObject], close: Callable[[bool], Awaitable[None]]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"  # a proxy that buffers the response would defeat the stream
        self.chunks, self.close = chunks, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        complete = False
        try:
            await run_while_connected(receive, lambda: self._write(send))
            complete = True
        except ClientDisconnect:
            pass
        finally:
            with CancelScope(shield=True):  # the rows must be released although the request is cancelled
                await self.close(complete)

    async def _write(self, send: Send) -> None:
        async def event(content: bytes) -> None:
            await send({"type": "http.response.body", "body": b"data: " + content + b"\n\n", "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self.chunks:
                await event(encode_json(chunk))
                await asyncio.sleep(0)  # send() does not wait while the client reads; other requests run here
            await event(b"[DONE]")
        except RecurError as error:
            await event(encode_json({"error": error_object(status_of(error), str(error))}))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
