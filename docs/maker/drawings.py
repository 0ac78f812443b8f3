"""Pictures of the documentation that are drawn by code, in both languages.

aliasing.LANGUAGE.svg              memory of the native core, by moment; the tables below are the specification
structures/NAME.LANGUAGE.svg       structure diagrams of networks, drawn by recur.studio.structures

`python -m docs drawings` writes the pictures, and a test compares them.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from docs.maker.languages import DOCS
from recur.studio.structures import DIAGRAMS, draw

WIDE, HIGH, LEFT, TOP = 120, 62, 156, 74

COLOURS = {"given": "#dbe7f5", "made": "#d9efdc", "gradient": "#f8dfd0", "work": "#ece6f5", "": "#ffffff"}

PHASES = {
    "en": ["forward:\nbefore step t", "forward:\nafter step t", "between\nthe passes", "backward:\nbefore step t",
           "backward:\nafter step t", "backward:\nafter the loop"],
    "zh": ["前向：\n第 t 步之前", "前向：\n第 t 步之后", "两遍之间", "反向：\n第 t 步之前", "反向：\n第 t 步之后", "反向：\n循环之后"],
}  # fmt: skip

Cell = tuple[str, str, str]
"""What lies there in English and Chinese, and its colour."""

NOTHING = ("", "", "")
ROWS: list[tuple[str, str, list[Cell]]] = [
    ("share", "(N, gates·H), saved", [
        ("U x_t + b", "U x_t + b", "work"), ("what is saved\nof step t", "第 t 步保存的值", "made"),
        ("saved values", "保存的值", "made"), ("saved values", "保存的值", "made"),
        ("∂(U x_t + b), if\nthis is the last\nbackward pass", "∂(U x_t + b)\n（若是最后\n一次反向）", "gradient"),
        ("→ ∂U, ∂W, ∂x", "→ ∂U、∂W、∂x", "gradient")]),
    ("outputs = state[0]", "(N, H), returned", [
        ("U x_t + b, where\none gate and\nnothing saved", "U x_t + b\n（仅一个门\n且不保存时）", "work"), ("h_t", "h_t", "made"),
        ("h: the caller's", "h：归调用者", "made"), ("h_t, h_{t−1}:\nread", "h_t、h_{t−1}：\n只读", "made"),
        ("h_t, h_{t−1}:\nread", "h_t、h_{t−1}：\n只读", "made"), ("h → ∂W", "h → ∂W", "made")]),
    ("state[1], …", "(N, H) each, saved", [
        NOTHING, ("c_t", "c_t", "made"), ("c", "c", "made"), ("c_t, c_{t−1}:\nread", "c_t、c_{t−1}：\n只读", "made"),
        ("c_t, c_{t−1}:\nread", "c_t、c_{t−1}：\n只读", "made"), NOTHING]),
    ("tape", "(N, saved·H), saved", [
        NOTHING, ("what found\nno gate's place", "门位放不下的值", "made"), ("the same", "同左", "made"), ("read", "只读", "made"),
        ("read", "只读", "made"), NOTHING]),
    ("d_weight_hh", "(products·H, H), returned", [
        NOTHING, NOTHING, NOTHING, ("W, packed", "打包的 W", "given"), ("W, packed", "打包的 W", "given"), ("∂W", "∂W", "gradient")]),
    ("d_weight_ih", "(gates·H, D), returned", [
        NOTHING, NOTHING, NOTHING, ("U, packed,\nfor ∂x", "打包的 U，\n供 ∂x", "given"),
        ("U, packed,\nfor ∂x", "打包的 U，\n供 ∂x", "given"), ("∂U", "∂U", "gradient")]),
    ("d_product", "(N, own·H), scratch", [
        NOTHING, NOTHING, NOTHING, NOTHING, ("∂(W h) where it\nis not ∂ of its\ngate's share", "∂(W h)，当它\n不等于同门的\n∂(U x + b)", "gradient"),
        ("→ ∂W", "→ ∂W", "gradient")]),
    ("workspace", "scratch", [
        ("W and U, packed", "打包的 W、U", "given"), ("one block of\ngates, of each\nthread", "每个线程\n一块门", "work"), NOTHING,
        ("∂h_t, ∂c_t\ncarried", "传来的\n∂h_t、∂c_t", "gradient"), ("∂h_{t−1},\n∂c_{t−1}\ncarried", "传出的\n∂h_{t−1}、\n∂c_{t−1}", "gradient"),
        ("panels of\nthe products", "矩阵乘的面板", "work")]),
]  # fmt: skip


def aliasing(language: str) -> str:
    """One row a piece of memory, one column a moment: what it holds then."""
    width, height = LEFT + WIDE * len(PHASES[language]) + 8, TOP + HIGH * len(ROWS) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" '
        f'font-size="12.5"><rect width="{width}" height="{height}" fill="#fff"/>'
    ]
    for k, phase in enumerate(PHASES[language]):
        parts.append(_text(phase, LEFT + WIDE * k + WIDE / 2, TOP / 2, weight="bold"))
    for r, (name, size, cells) in enumerate(ROWS):
        y = TOP + HIGH * r
        parts.append(f'<text x="8" y="{y + 27}" font-family="monospace" font-weight="bold">{escape(name)}</text>')
        parts.append(f'<text x="8" y="{y + 44}" fill="#555" font-size="11">{escape(size)}</text>')
        for k, (english, chinese, colour) in enumerate(cells):
            x = LEFT + WIDE * k
            box = f'x="{x + 2}" y="{y + 3}" width="{WIDE - 4}" height="{HIGH - 6}" rx="5"'
            edge = ' stroke="#999"' if colour else ' stroke="#ddd" stroke-dasharray="3 3"'
            parts.append(f'<rect {box} fill="{COLOURS[colour]}"{edge}/>')
            parts.append(_text(english if language == "en" else chinese, x + WIDE / 2, y + HIGH / 2))
    return "".join(parts) + "</svg>\n"


def _text(text: str, x: float, y: float, weight: str = "normal") -> str:
    lines = text.split("\n")
    return "".join(
        f'<text x="{x:g}" y="{y + 4 + 16 * (k - (len(lines) - 1) / 2):g}" text-anchor="middle" font-weight="{weight}" '
        f'fill="#222">{escape(line)}</text>'
        for k, line in enumerate(lines)
        if line
    )


def drawings() -> dict[Path, str]:
    found = {DOCS / "assets" / f"aliasing.{code}.svg": aliasing(code) for code in ("en", "zh")}
    for name in DIAGRAMS:
        found |= {DOCS / "assets" / "structures" / f"{name}.{code}.svg": draw(name, code) for code in ("en", "zh")}
    return found


def write() -> None:
    for path, content in drawings().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
