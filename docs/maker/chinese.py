"""What executed blocks gave, for a Chinese page: figures with Chinese words, and the labs' conclusions.

Blocks are run once for both languages. Words of a figure are text in its SVG; those that recur's own catalogue knows,
or the list below, which is of figures that pages draw themselves, are replaced. No font is shipped: the reader's system
draws them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path

from docs.maker.executing import Result
from recur.i18n import catalogue, translate

WORD = re.compile(r"(<text [^>]*>)([^<>]+)(</text>)")
PARAGRAPH = 120
"""Lines longer than this are a lab's conclusion; tables and numbers stay as they are printed."""

DRAWN = {
    r"n, with v = ⁿ√v\*": "n，取 v = ⁿ√v*",
    "one w": "共用一个 w",
    "one W": "共用一个 W",
    "one for each step": "每步各一个",
    "theory of its mean, vⁿ": "均值的理论值 vⁿ",
    "network: (.+)": r"网络：\1",
    "1997: f = 1": "1997 年：f = 1",
    "along C": "沿 C",
    "all other paths": "其余所有路径",
    "forget bias (.+)": r"遗忘偏置 \1",
    "LSTM, forget bias (.+)": r"LSTM，遗忘偏置 \1",
    "Elman, W orthogonal": "Elman，W 正交",
    "tanh, (.+)": r"tanh，\1",
    r"‖∂L/∂s_t‖, the last is 1": "‖∂L/∂s_t‖，最后一步为 1",
    "chance": "瞎猜",
    "recall over (.+) steps": r"隔 \1 步的回忆",
    "(.+), 5 rows": r"\1，5 行",
    "clipped above (.+)": r"超过 \1 则裁剪",
    "rank": "排名",
    "count": "次数",
    "single, (.+)": r"一元，\1",
    "pairs, (.+)": r"二元，\1",
    "triples, (.+)": r"三元，\1",
    "step": "步",
    "perplexity of the validation part": "验证集困惑度",
    "window (.+)": r"窗口 \1",
    "ways to cut it, of layer 1, h": "各种截断方式，第 1 层的 h",
    "what was": "实际值",
    "median": "中位数",
    "the rule without noise": "不含噪声的规律",
    "Sold": "销量",
    "forecast": "预测",
}
"""Words of pages and of figures that recur itself draws in English only, as patterns."""


def result(found: Result, folder: Path) -> Result:
    text = "\n".join(translate_printed(line) if len(line) > PARAGRAPH else line for line in found["text"].split("\n"))
    return Result(text=text, files=[figure(folder, name) for name in found["files"]])


def figure(folder: Path, name: str) -> str:
    """The name of the same figure in Chinese, which is written beside it where it differs."""
    if not name.endswith(".svg"):
        return name
    was = (folder / name).read_text(encoding="utf-8")
    now = WORD.sub(lambda word: f"{word[1]}{escape(chinese_word(unescape(word[2])))}{word[3]}", was)
    if now == was:
        return name
    other = f"{name.removesuffix('.svg')}.zh.svg"
    (folder / other).write_text(now, encoding="utf-8")
    return other


def chinese_word(word: str) -> str:
    for pattern, chinese in DRAWN.items():
        if found := re.fullmatch(pattern, word):
            return found.expand(chinese)
    return translate_printed(word)


FIELD = re.compile(r"{(\w+)(?:![rs])?(?::[^{}]*)?}")


@functools.cache
def printed_messages() -> list[tuple[re.Pattern[str], str]]:
    """Return a pattern of each English message with values as a block prints it, and its Chinese template."""

    def patterns() -> Iterator[tuple[re.Pattern[str], str]]:
        for (context, english), chinese in catalogue("zh").items():
            if context or not FIELD.search(english):
                continue
            parts, names = FIELD.split(english.replace("{{", "\0").replace("}}", "\1")), set[str]()
            pattern = ""
            for text, name in zip(parts[::2], [*parts[1::2], ""], strict=True):
                pattern += re.escape(text.replace("\0", "{").replace("\1", "}"))
                if name:
                    pattern += f"(?P={name})" if name in names else f"(?P<{name}>.+?)"
                    names.add(name)
            if len(FIELD.sub("", english)) > 4:  # a pattern of hardly more than values fits any text
                yield re.compile(pattern, re.DOTALL), chinese

    return sorted(patterns(), key=lambda one: -len(one[0].pattern))


def translate_printed(text: str) -> str:
    """Translate a message that a block printed: blocks run once, in English, so its values are read from the text."""
    if (known := translate(text, "zh")) != text:
        return known
    for pattern, chinese in printed_messages():
        if found := pattern.fullmatch(text):
            values = {name: translate_printed(value) for name, value in found.groupdict().items()}
            template = chinese.replace("{{", "{").replace("}}", "}")
            return FIELD.sub(lambda field, values=values: values[field[1]], template)  # type: ignore[misc]
    return text
