"""Requests and responses of the studio and `recur serve`: request models, JSON, streams, and errors of one line."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from anyio import CancelScope, create_task_group
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from recur.errors import OptionError, RecurError, TextError
from recur.i18n import Message, map_text
from recur.utils.types import JsonObject

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


class ConflictError(RecurError):
    """Error of a request for a session that another request uses."""


class RateError(RecurError):
    """Error of too many requests with one token."""


class GoneError(RecurError):
    """Error of a request that continues a text which is no longer cached; the client must send the whole text."""


STATUS: dict[type[Exception], int] = {
    TooLargeError: 413,
    UnknownError: 404,
    ForbiddenError: 403,
    BusyError: 503,
    RateError: 429,
    ConflictError: 409,
    GoneError: 410,
    OptionError: 400,
    TextError: 400,
    ClientDisconnect: 499,
}
"""Status code of each error."""
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 503: "overloaded_error"}
"""OpenAI's types of errors by status code."""


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


def status_of(error: Exception, otherwise: int = 500) -> int:
    """Return the status code of the response to an error."""
    return next((code for kind, code in STATUS.items() if isinstance(error, kind)), otherwise)


def error_line(text: str) -> str:
    """Return the text of an error in one line of limited length."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"


def plain_error(status: int, text: str) -> JsonObject:
    """Return the body of an error response of the studio."""
    return {"error": error_line(text)}


def openai_error(status: int, text: str) -> JsonObject:
    """Return the body of an error response in OpenAI's form."""
    text = error_line(text)
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = "model_not_found" if status == 404 and text.startswith("the model ") else None
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


ErrorFormat = Callable[[int, str], JsonObject]
"""Function that returns the body of an error response from its status code and text."""


def refusal(status: int, text: str, form: ErrorFormat, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response to a refused request."""
    more = {429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}, 401: {"WWW-Authenticate": "Bearer"}}.get(status, {})
    return FiniteJSONResponse(form(status, text), status, {**more, **(headers or {})})


def without_folders(text: str, folder: Path) -> str:
    """Return an error text without folders: clients on other machines may see names of files, not their locations."""
    bases = {str(folder), str(folder.absolute()), str(folder.resolve())} - {"."}

    def shorten(part: str) -> str:
        for base in bases:
            part = part.replace(f"{base}/", "").replace(base, folder.name)
        return FOLDERS.sub("", part)

    return map_text(text, shorten)


def error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        named = f": {error.filename}" if error.filename else ""
        return Message("a file cannot be read: {why}", why=f"{error.strerror}{named}")
    return str(error)


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


CONTAINERS = (dict, list, tuple, EncodedArray)


def json_pieces(content: object) -> Iterator[bytes]:
    """Encode JSON piece by piece: containers item by item, numbers and texts at once."""
    if isinstance(content, EncodedArray):
        yield from content.pieces()
    elif isinstance(content, dict) and any(isinstance(value, CONTAINERS) for value in content.values()):
        for k, (name, value) in enumerate(content.items()):
            yield (b"," if k else b"{") + encode_json(str(name)) + b":"
            yield from json_pieces(value)
        yield b"}"
    elif isinstance(content, list | tuple) and any(isinstance(value, CONTAINERS) for value in content):
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


def buffered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join pieces to buffers of at least CHUNK bytes; the last one may be shorter."""
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


LARGEST = 1e300
SURROGATE = re.compile("[\ud800-\udfff]")
EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}
"""Text for each of pydantic's type errors."""
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "list", dict: "object"}

Number = TypeVar("Number", int, float)
Result = TypeVar("Result")
Model = TypeVar("Model", bound="RequestModel")


async def read_json(request: Request, most: int) -> JsonObject:
    """Return the body of a request; refuse a body of more than `most` bytes or one that is no JSON object."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise OptionError(Message("Content-Type must be application/json"))
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise TooLargeError(Message("request body too large: at most {most} bytes", most=f"{most:,}"))
    content = parse_json(body or b"{}")
    if not isinstance(content, dict):
        raise OptionError(Message("the request body must be a JSON object in UTF-8"))
    return content


def parse_json(content: bytes) -> object:
    """Parse JSON in UTF-8; return None for anything else."""
    try:
        return json.loads(content.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's parser reads although JSON has no such numbers."""
    raise ValueError(name)


class RequestModel(BaseModel):
    """Base of request bodies: strict types, finite numbers, and unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


class NullableRequestModel(RequestModel):
    """Base of request bodies in which null means that a field is not given, as in OpenAI's API."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        return {name: value for name, value in body.items() if value is not None} if isinstance(body, dict) else body

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe optional fields as nullable, as `_drop_nulls` accepts them."""
        described = handler.resolve_ref_schema(handler(schema))
        required = described.get("required", [])
        for name, field in described["properties"].items():
            field.pop("title", None)
            if name not in required and "type" in field:
                field["type"] = [field["type"], "null"]
            elif name not in required and "anyOf" in field and {"type": "null"} not in field["anyOf"]:
                field["anyOf"].append({"type": "null"})
        return described


def validate(model: type[Model], body: object, limits: object = None) -> Model:
    """Return a request model made from a JSON value; raise OptionError with the first error, in one line.

    limits: object whose attributes are the bounds of fields that a server configures.
    """
    try:
        return model.model_validate(body, context=limits)
    except ValidationError as error:
        raise OptionError(_describe_error(error, model)) from None


def _describe_error(error: ValidationError, model: type[RequestModel]) -> str:
    first = error.errors(include_url=False)[0]
    kind, context, value = first["type"], first.get("ctx", {}), first["input"]
    name = ".".join(str(part) for part in first["loc"] if isinstance(part, str)) or "the request"
    if kind == "value_error":  # raised by a validator of ours, whose text is whole
        return str(context["error"])
    if kind == "extra_forbidden":
        owner, _, unknown = name.rpartition(".")
        fields = model.model_fields[owner].annotation if owner else model
        known = fields.model_fields if isinstance(fields, type) and issubclass(fields, BaseModel) else {}
        return f"unknown option {unknown[:100]!r}; there are {', '.join(known)}"
    if kind in EXPECTED:
        return Message(
            "{name} must be {kind}, got {given}",
            name=name,
            kind=EXPECTED[kind],
            given=JSON_TYPES.get(type(value), "null"),
        )
    bounds = {
        "greater_than_equal": Message("be at least {least}", least=_bound(context.get("ge"))),
        "less_than_equal": Message("be at most {most}", most=_bound(context.get("le"))),
    }
    if kind in bounds:
        return Message("{name} must {bound}, got {value}", name=name, bound=bounds[kind], value=str(value)[:40])
    texts = {
        "missing": "is missing",
        "string_too_long": f"is too long: at most {context.get('max_length', 0):,} characters",
        "too_long": f"has too many items: at most {context.get('max_length', 0):,}",
        "string_unicode": "has half of a surrogate pair in it, which is no character",
    }
    return f"{name} {texts.get(kind, first['msg'])}"


def _bound(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)  # 2^63 must keep its digits


def check_range(name: str, value: Number, low: float, high: float) -> Number:
    """Return a field whose bounds depend on the model; refuse a value out of bounds."""
    if not low <= value <= high:
        raise OptionError(
            Message(
                "{name} must lie in {low} … {high}, got {given}",
                name=name,
                low=f"{low:g}",
                high=f"{high:g}",
                given=str(value)[:40],
            )
        )
    return value


def finite_or_none(value: object) -> float | None:
    """Return a number that JSON can hold; None for anything else, such as infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        return None
    return float(value)


async def run_while_connected(receive: Receive, work: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of `work`; cancel it and raise ClientDisconnect when the client disconnects first."""
    results: list[Result] = []
    failed: Exception | None = None
    async with create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            results.append(await work())
        except Exception as error:  # kept outside of the task group, which would wrap it in an ExceptionGroup
            failed = error
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed
    if not results:
        raise ClientDisconnect
    return results[0]


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
            await event(encode_json(openai_error(status_of(error), str(error))))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
