"""Escapes for text that comes from files, names and models before a terminal shows it."""

from __future__ import annotations

import logging
import re
import warnings

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal (C0, DEL, C1), reorder or break its lines (Unicode Bidi_Control, line separators),
or have no UTF-8 encoding (surrogates). Newlines and tabs are not among them."""


def visible(text: str) -> str:
    r"""Return the text with every unsafe character as `\uXXXX`, the escape that JSON, Python and C share.

    >>> visible("a\x1b[31mb")
    'a\\u001b[31mb'
    """
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class VisibleFormatter(logging.Formatter):
    """Formatter of log records for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted record with unsafe characters escaped."""
        return visible(super().format(record))


def escape_messages() -> None:
    """Escape unsafe characters in Python warnings and in log records that no handler takes: both may quote names."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(VisibleFormatter())
    original = warnings.formatwarning

    def formatted(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return visible(original(message, category, filename, lineno, line))

    warnings.formatwarning = formatted
