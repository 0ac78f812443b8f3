"""Escaping of strings from a run, with one function per kind of generated source.

Labels, tokens, tags, column names and the name of a run may hold anything: the end of a comment, a quote, a line break,
half of a surrogate pair. Whoever writes them can be a stranger, and an export compiles and runs what it generates.
Every such string passes through this module on its way into C, JavaScript, HTML, ONNX or torch.export. Only arrays of
numbers (`c_bytes`) carry a string unchanged.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping

COMMENT = re.compile(r"""[^A-Za-z0-9 .,:;=+()&%"'_-]""")
"""Characters that a comment must not hold. An allow-list: `*`, `/`, `\\` and `?` end comments, join lines or begin
trigraphs, `@` is the placeholder for the prefix of the header, and control characters end lines."""

SURROGATE = re.compile("[\ud800-\udfff]")
UNSAFE_IN_JSON = re.compile(r"[^\x20-\x7e]|[<>&]")
UNSAFE_IN_HTML = re.compile("[\0-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufdd0-\ufdef\ufeff\ufffe\uffff]")
"""Control characters, which HTML has no text for, and marks that turn the direction of what follows."""

PLACEHOLDER = re.compile(r"\{(\w+)\}")


def identifier(name: str) -> str:
    """Return a name as ASCII letters, digits and underscores; another letter becomes `u` and its code point."""
    found = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"u{ord(c):04x}" for c in name)
    return found if found[:1].isalpha() else f"v{found}"


def unicode_text(text: str) -> str:
    """Return a text that UTF-8 can hold: the name of a folder that is not UTF-8 has surrogates in it."""
    return SURROGATE.sub("\ufffd", text)


def c_bytes(text: str) -> bytes:
    """Return the UTF-8 bytes of a text, for an array of numbers."""
    return unicode_text(text).encode()


def c_comment(text: str) -> str:
    """Return a text for a comment of C, with `_` for every character that is not allowed."""
    return COMMENT.sub("_", text.replace("×", "x"))


def c_string(text: str) -> str:
    """Return a string literal of C. An escape has three octal digits, so that no digit behind it belongs to it."""
    return '"' + "".join(map(_c_character, c_bytes(text))) + '"'


def _c_character(byte: int) -> str:
    plain = 32 <= byte < 127 and byte not in b'"\\?@'  # ?: trigraphs; @: the placeholder for the prefix
    return chr(byte) if plain else f"\\{byte:03o}"


def json_text(content: object) -> str:
    """Return JSON that is also an expression of JavaScript and the content of a script element: no `<`, no `&`, no
    control character, no line separator, no mark of direction, no lone surrogate."""
    return UNSAFE_IN_JSON.sub(_json_character, json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def _json_character(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable() and character not in "<>&":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[k]:02x}{units[k + 1]:02x}" for k in range(0, len(units), 2))


def html_text(text: str) -> str:
    """Return a text for an element or a quoted attribute of HTML."""
    return html.escape(UNSAFE_IN_HTML.sub("\ufffd", unicode_text(text)))


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Return a template with every `{name}` replaced by the value of that name, in one pass: a placeholder that is
    part of a value stays what it is."""
    return PLACEHOLDER.sub(lambda found: values[found[1]], template)
