"""What the server answers: JSON of finite numbers, and errors of one line that name no folder of this machine."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from starlette.responses import JSONResponse, Response

from recur.errors import OptionError, RecurError, TextError
from recur.i18n import Message, map_text

FOLDERS = re.compile(r"""(?<![\w./~-])/(?:[^\s/'":,;]+/)+""")
"""Of an absolute path, all but its last name."""
LONGEST = 500
"""Characters of an error."""


class TooLargeError(RecurError):
    """A request body above the limit."""


class UnknownError(RecurError):
    """There is nothing of this name."""


class ForbiddenError(RecurError):
    """It may not be done here."""


class BusyError(RecurError):
    """Too many requests wait already."""


class GoneError(RecurError):
    """What a request goes on from is not remembered any more: all of it has to be sent again."""


STATUS = {
    TooLargeError: 413,
    UnknownError: 404,
    ForbiddenError: 403,
    BusyError: 503,
    GoneError: 410,
    OptionError: 400,
    TextError: 400,
}
"""Of an error; any other is the run's and no mistake of the request: 409."""


class Answer(JSONResponse):
    """JSON, whatever numbers and characters are in it: null for what is not finite."""

    def render(self, content: object) -> bytes:
        return encode(content)


def encode(content: object) -> bytes:
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a number that is none, which is rare enough to look for it only then
        text = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")  # half a surrogate pair is \udc80, which is JSON's own spelling


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def error_line(text: str) -> bytes:
    """The body of every refusal."""
    text = " ".join(text.split())
    return encode({"error": text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"})


def refusal(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(error_line(text), status, headers, "application/json")


def without_folders(text: str, folder: Path) -> str:
    """An error as those may read it who are not at this machine: the names of files, and not where they are."""
    bases = {str(folder), str(folder.absolute()), str(folder.resolve())} - {"."}

    def shortened(part: str) -> str:
        for base in bases:
            part = part.replace(f"{base}/", "").replace(base, folder.name)
        return FOLDERS.sub("", part)

    return map_text(text, shortened)


def error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        named = f": {error.filename}" if error.filename else ""
        return Message("a file cannot be read: {why}", why=f"{error.strerror}{named}")
    return str(error)


def status_of(error: Exception) -> int:
    """Of the answer to a request that ended in an error."""
    return next((code for kind, code in STATUS.items() if isinstance(error, kind)), 409)
