"""Messages: English sentences that keep their msgid and values, and their translation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from recur.i18n.catalogue import catalogue

Language = Literal["en", "zh"]


MESSAGES = "RECUR_MESSAGES"
"""Environment variable: "json" makes the command line print messages as `encode` writes them, for another process."""


class Message(str):
    """English sentence that keeps its msgid and its values, so that it can be translated later."""

    msgid: str
    values: Mapping[str, Any]

    def __new__(cls, msgid: str, /, **values: Any) -> Self:
        message = super().__new__(cls, msgid.format(**values))
        message.msgid, message.values = msgid, values
        return message

    def __str__(self) -> str:
        """Return the message itself: `str(error)` of an error raised with a message can still be translated."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[str, Mapping[str, Any]]]:
        return _make_message, (self.msgid, self.values)


def _make_message(msgid: str, values: Mapping[str, Any]) -> Message:
    return Message(msgid, **values)


def translate(text: str, language: Language = "en", context: str = "") -> str:
    """Return the text in the language; the text itself where the catalogue has no translation.

    Args:
        text: a message, or a msgid without values.
        context: the msgctxt of the entry.
    """
    if language == "en":
        return str(text)
    entries = catalogue(language)
    if not isinstance(text, Message):
        return entries.get((context, text), text)
    translated = entries.get((context, text.msgid), text.msgid)
    values = {
        name: translate(value, language) if isinstance(value, str) else value for name, value in text.values.items()
    }
    return translated.format(**values)


def map_text(text: str, function: Callable[[str], str]) -> str:
    """Apply a function to a text; to the values of a message, whose msgid stays."""
    if not isinstance(text, Message):
        return function(text)
    return Message(text.msgid, **{name: _map_value(value, function) for name, value in text.values.items()})


def _map_value(value: Any, function: Callable[[str], str]) -> Any:
    return value if isinstance(value, int | float) else map_text(str(value), function)


def as_json(text: Any) -> Any:
    """Return a text as JSON that `from_json` reads: a message with its msgid and values, any other text as it is."""
    if isinstance(text, Message):
        values = {name: as_json(value) for name, value in text.values.items()}
        return {"text": text, "msgid": text.msgid, "values": values}
    return text if isinstance(text, int | float) else str(text)


def from_json(found: Any) -> str:
    """Return the text that `as_json` gave.

    The JSON may come from somebody else, so a msgid is formatted only if the catalogue has it.
    """
    if not isinstance(found, dict):
        return str(found)
    msgid, values = found.get("msgid"), found.get("values")
    if not isinstance(msgid, str) or not isinstance(values, dict) or ("", msgid) not in catalogue("zh"):
        return str(found.get("text", ""))
    try:
        return Message(msgid, **{name: _value(value) for name, value in values.items()})
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):  # values of another kind
        return str(found.get("text", ""))


def _value(found: Any) -> Any:
    return found if isinstance(found, int | float) else from_json(found)


def encode(text: str) -> str:
    """Return a text as one line of JSON that `decode` reads: for messages that another process shows."""
    return json.dumps({"message": as_json(text)}, ensure_ascii=False)


def printed(text: str) -> str:
    """Return a text as the command line prints it: a message as JSON where another process asks for that."""
    return encode(text) if isinstance(text, Message) and os.environ.get(MESSAGES) == "json" else text


def decode(line: str) -> str:
    """Return the text that `encode` wrote; any other line as it is."""
    try:
        found = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return line
    return from_json(found["message"]) if isinstance(found, dict) and "message" in found else line
