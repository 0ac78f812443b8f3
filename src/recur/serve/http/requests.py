"""The body of a request."""

from __future__ import annotations

import json
from typing import NoReturn
from starlette.requests import Request
from recur.errors import OptionError
from recur.serve.http.responses import TooLargeError
from recur.utils.types import JsonObject
import re
from typing import TypeVar

async def read_json(request: Request, most: int) -> JsonObject:
    """The body of a request, if it has at most so many bytes and is a JSON object."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise OptionError("Content-Type must be application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise TooLargeError(f"request body too large: at most {most:,} bytes")
    content = parse_json(body or b"{}")
    if not isinstance(content, dict):
        raise OptionError("the request body must be a JSON object in UTF-8")
    return content


def parse_json(content: bytes) -> object:
    """What JSON in UTF-8 says; None where it is none."""
    try:
        return json.loads(content.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(name: str) -> NoReturn:
    """Python reads NaN and Infinity, which are not JSON."""
    raise ValueError(name)


LARGEST = 1e300
SURROGATE = re.compile("[\ud800-\udfff]")

Value = TypeVar("Value", int, float, str)


def get_field(request: JsonObject, name: str, default: Value, low: float = 0, high: float = 1e9) -> Value:
    """A field of the type of its default and within its bounds; the default where it is missing."""
    kind = type(default)
    value = request.get(name, default)
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise OptionError(f"{name} must be {kind.__name__}, got {type(value).__name__}")
    if isinstance(value, str):
        if not value.isascii() and SURROGATE.search(value):
            raise OptionError(f"{name} has half of a surrogate pair in it, which is no character")
    elif not low <= value <= high:  # before it is a float, which has no room for every int
        raise OptionError(f"{name} must lie in {low:g} … {high:g}, got {str(value)[:40]}")
    checked: Value = kind(value)
    return checked


def finite_or_none(value: object) -> float | None:
    """A number that JSON can hold; None for anything else, infinity among it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        return None
    return float(value)
