"""The body of a request."""

from __future__ import annotations

import json
from typing import NoReturn

from starlette.requests import Request

from recur.errors import OptionError
from recur.i18n import Message
from recur.serve.http.answers import TooLargeError
from recur.utils.types import JsonObject


async def read_json(request: Request, most: int) -> JsonObject:
    """The body of a request, if it has at most so many bytes and is a JSON object."""
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
    """What JSON in UTF-8 says; None where it is none."""
    try:
        return json.loads(content.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(name: str) -> NoReturn:
    """Python reads NaN and Infinity, which are not JSON."""
    raise ValueError(name)
