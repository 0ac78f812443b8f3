"""Reader of the translation catalogues, which are gettext .po files.

The package reads the .po file itself at first use: there is no compiled file to build or to keep in step.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from pathlib import Path

Entries = Mapping[tuple[str, str], str]
"""Translations by msgctxt ("" for none) and msgid."""

LOCALE = Path(__file__).parent / "locale"


def catalogue_file(language: str) -> Path:
    """Return the path of the .po file of a language."""
    return LOCALE / language / "LC_MESSAGES" / "recur.po"


@functools.cache
def catalogue(language: str) -> Entries:
    """Return the translations of a language."""
    return read_po(catalogue_file(language).read_text(encoding="utf-8"))


def read_po(text: str) -> Entries:
    """Return the translations of a .po file, without its header and without empty, fuzzy and obsolete entries.

    Plural forms are not read: recur's catalogues have none.
    """
    entries: dict[tuple[str, str], str] = {}
    for block in text.split("\n\n"):
        fields = {"msgctxt": "", "msgid": "", "msgstr": ""}
        current, fuzzy = "", False
        for line in block.splitlines():
            if line.startswith("#"):
                fuzzy = fuzzy or (line.startswith("#,") and "fuzzy" in line)
                continue
            keyword, _, rest = line.partition(" ")
            if keyword in fields:
                current, line = keyword, rest
            fields[current] += ast.literal_eval(line)
        if fields["msgid"] and fields["msgstr"] and not fuzzy:
            entries[fields["msgctxt"], fields["msgid"]] = fields["msgstr"]
    return entries
