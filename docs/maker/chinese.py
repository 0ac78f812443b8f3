"""What executed blocks gave, for a Chinese page: figures with Chinese words, and the labs' conclusions.

Blocks are run once for both languages. Words of a figure are text in its SVG; those that recur's own catalogue knows,
or the list below, which is of figures that pages draw themselves, are replaced. No font is shipped: the reader's system
draws them.
"""

from __future__ import annotations

import re
from html import escape, unescape
from pathlib import Path

from docs.maker.executing import Result
from recur.wording import in_language

WORD = re.compile(r"(<text [^>]*>)([^<>]+)(</text>)")
PARAGRAPH = 120
"""Lines longer than this are a lab's conclusion; tables and numbers stay as they are printed."""

DRAWN: dict[str, str] = {}


def result(found: Result, folder: Path) -> Result:
    text = "\n".join(in_language(line, "zh") if len(line) > PARAGRAPH else line for line in found["text"].split("\n"))
    return Result(text=text, files=[figure(folder, name) for name in found["files"]])


def figure(folder: Path, name: str) -> str:
    """The name of the same figure in Chinese, which is written beside it where it differs."""
    if not name.endswith(".svg"):
        return name
    was = (folder / name).read_text(encoding="utf-8")
    now = WORD.sub(lambda word: f"{word[1]}{escape(said(unescape(word[2])))}{word[3]}", was)
    if now == was:
        return name
    other = f"{name.removesuffix('.svg')}.zh.svg"
    (folder / other).write_text(now, encoding="utf-8")
    return other


def said(word: str) -> str:
    return DRAWN.get(word) or in_language(word, "zh")
