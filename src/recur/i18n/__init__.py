"""Translated messages, in the manner of gettext.

    Message("gradients vanish: × {decay:.3g} per step", decay=0.64)

is a str, the English sentence, that keeps its msgid (the English format string) and its values.
`translate(message, "zh")` looks the msgid up in `locale/zh/LC_MESSAGES/recur.po` and formats the translation with the
same values; values that are messages or msgids themselves are translated first. `python -m tools.messages` collects the
msgids of the source and updates the catalogue.
"""

from recur.i18n.catalogue import catalogue
from recur.i18n.message import (
    MESSAGES,
    Language,
    Message,
    as_json,
    decode,
    encode,
    from_json,
    map_text,
    printed,
    translate,
)

__all__ = [
    "MESSAGES",
    "Language",
    "Message",
    "as_json",
    "catalogue",
    "decode",
    "encode",
    "from_json",
    "map_text",
    "printed",
    "translate",
]
