"""Tokens as ARPA files write them: <s> and </s> for <bos> and <eos>, white space as Python would escape it."""

from __future__ import annotations

import re

from recur.data.text.specials import SPECIALS

TO_ARPA = {"<bos>": "<s>", "<eos>": "</s>"}
_FROM_ARPA = {arpa: ours for ours, arpa in TO_ARPA.items()}


def special(token: str) -> str | None:
    """Our name of a token that every implementation has; some write it in capitals."""
    lowered = token.lower()
    return _FROM_ARPA.get(lowered) or (lowered if lowered in SPECIALS else None)


def escape(token: str) -> str:
    odd = [c.isspace() or not c.isprintable() for c in token]
    if token.lower() in _FROM_ARPA:
        return f"\\x3c{token[1:]}"  # a word of the text that looks like an end of ours
    if not any(odd) and unescape(token) == token:
        return token  # a backslash that escapes nothing is left alone: other implementations know no escapes
    written = []
    for c, is_odd in zip(token, odd, strict=True):
        escaped = c.encode("unicode_escape").decode() if is_odd or c == "\\" else c
        written.append("\\x20" if c == " " else escaped)
    return "".join(written)


def unescape(token: str) -> str:
    if "\\" not in token:
        return token
    return re.sub(
        r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[nrt\\])",
        lambda found: found[0].encode().decode("unicode_escape"),
        token,
    )
