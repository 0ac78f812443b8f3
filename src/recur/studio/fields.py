"""What the views are asked for: a text, and how to draw from the model."""

from __future__ import annotations

from recur.decoding import Choice
from recur.errors import OptionError
from recur.serve.http.requests import get_field
from recur.utils.types import JsonObject

TEXT = 4000
"""Characters of a text, at most."""


def text_of(request: JsonObject) -> str:
    text = get_field(request, "text", "")
    if len(text) > TEXT:
        raise OptionError(f"the text is too long: {len(text):,} characters, at most {TEXT:,}")
    return text


def choice_of(request: JsonObject) -> Choice:
    """Temperature, top-k and top-p."""
    return Choice(
        temperature=get_field(request, "temperature", 1.0, 0.05, 5),
        top_k=get_field(request, "top_k", 0, 0, 10**6),
        top_p=get_field(request, "top_p", 1.0, 0.01, 1),
    )
