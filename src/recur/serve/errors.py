"""Errors as OpenAI's API says them."""

from __future__ import annotations

from starlette.responses import Response

from recur.errors import OptionError, RecurError, TextError
from recur.serve.http.answers import LONGEST, BusyError, TooLargeError, UnknownError, encode


class ConflictError(RecurError):
    """A session is in use."""


class RateError(RecurError):
    """Too many requests of one token."""


STATUS: dict[type[Exception], int] = {
    TooLargeError: 413,
    UnknownError: 404,
    BusyError: 503,
    RateError: 429,
    ConflictError: 409,
    OptionError: 400,
    TextError: 400,
}
"""Of an error; any other is the server's."""
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 503: "overloaded_error"}


def status_of(error: Exception) -> int:
    return next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)


def error_object(status: int, text: str) -> dict[str, object]:
    text = " ".join(text.split())
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = "model_not_found" if status == 404 and text.startswith("the model ") else None
    return {"message": text, "type": kind, "param": None, "code": code}


def error_body(status: int, text: str) -> bytes:
    return encode({"error": error_object(status, text)})


def refusal(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    headers = {"Retry-After": "1", **(headers or {})} if status in (429, 503) else headers
    headers = {"WWW-Authenticate": "Bearer", **(headers or {})} if status == 401 else headers
    return Response(error_body(status, text), status, headers, "application/json")
