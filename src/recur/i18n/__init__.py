"""Sentences that can be said in another language.

    said("gradients vanish: × {decay:.3g} a step", decay=0.64)

is a str, the sentence in English, which remembers what it was made of. `in_language(sentence, "zh")` says it in
Chinese: its template is looked up in the catalogue of that language, and so is each of its values that is a sentence
or a word of the catalogue. A test finds templates without a translation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Language = Literal["en", "zh"]


class Said(str):
    """A sentence in English, with its template and its values."""

    template: str
    values: Mapping[str, Any]


def said(template: str, /, **values: Any) -> Said:
    sentence = Said(template.format(**values))
    sentence.template, sentence.values = template, values
    return sentence


def in_language(text: str, language: Language = "en") -> str:
    """A sentence in another language; as it is where the catalogue does not have it."""
    if language == "en":
        return str(text)
    from recur.i18n.chinese import TEMPLATES, plain

    if not isinstance(text, Said):
        return TEMPLATES.get(text, plain(text))
    values = {
        name: in_language(value, language) if isinstance(value, str) else value for name, value in text.values.items()
    }
    return TEMPLATES.get(text.template, text.template).format(**values)
