"""What the views are asked for: a text, and how to draw from the model."""

from __future__ import annotations

from recur.decoding import Choice
from recur.errors import OptionError
from recur.i18n import Message
from recur.serve.http.fields import field
from recur.utils.types import JsonObject

TEXT = 4000
"""Characters of a text, at most."""


def text_of(request: JsonObject) -> str:
    text = field(request, "text", "")
    if len(text) > TEXT:
        raise OptionError(
            Message("the text is too long: {n} characters, at most {most}", n=f"{len(text):,}", most=f"{TEXT:,}")
        )
    return text


def choice_of(request: JsonObject) -> Choice:
    """Temperature, top-k and top-p."""
    return Choice(
        temperature=field(request, "temperature", 1.0, 0.05, 5),
        top_k=field(request, "top_k", 0, 0, 10**6),
        top_p=field(request, "top_p", 1.0, 0.01, 1),
    )
