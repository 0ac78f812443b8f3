"""One letter for one matrix, as in the notes: a = b + W h + U x, o = c + V h; K is the size of a vocabulary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLACES = ("src/recur", "docs", "examples", "recipes", "README.md", "CONTRIBUTING.md")
KINDS = {".py", ".md", ".h", ".cpp", ".js", ".html", ".toml"}

OTHER_LETTERS = {
    Path("docs/read-along/3-sequence-models.md"),  # quotes the names of Dive into Deep Learning: W_xh, W_hh, W_hq
    Path("docs/zh/read-along/3-sequence-models.md"),
    Path("src/recur/cells/matrix.py"),  # a matrix state is (K, V) in its literature
}

LETTER = r"(?<![\w.'\"])"  # not inside a word, a string of letters or an attribute
BLOCK = r"(?:_[a-z]\w{0,2})?"  # of a gate, as in W_f
TIMES = r" ?[@·]? ?"
STATE = r"(?:d?[hs](?![a-z0-9]|_[a-z]{2})|\([a-z] ⊙ h)"  # h, s_{t−1}, dh, (r ⊙ h)
INPUT = r"x(?![a-z0-9]|_[a-z]{2})"

WRONG = {
    "W multiplies a state, U the input": (
        rf"{LETTER}W{BLOCK}{TIMES}{INPUT}",
        rf"{LETTER}U{BLOCK}{TIMES}{STATE}",
        rf"{LETTER}W\b[^=\n,]*= *[^=\n,]*\bweight_ih\b",
        rf"{LETTER}U\b[^=\n,]*(?:, \w+)? = *[^=\n,]*\bweight_hh\b",
        r"\bwhat U multiplies\b",
        r"\bU multiplies (?!x\b|the input)",
        r"\bproducts? with U\b",
        r"\b(?:orthogonal|recurrent) (?:matrix )?U\b",
        r"\b(?:U orthogonal|U = I|powers of U|entries of U|Uᵗ)",
        r"\binput (?:matrix )?W\b",
        r"\bblocks of W and U\b",
    ),
    "U, W and V carry no names of layers": (r"\bW_(?:xh|hx|hh|ih|hq|qh|ho|oh|hy)\b",),
    "a vocabulary has K tokens": (r"\b[Vv]ocabular(?:y|ies)(?: of)?(?: size)? V(?:_\w+)?\b", r"\bV: int\b"),
}


def lines() -> list[tuple[str, int, str]]:
    files = [path for place in PLACES for path in ([ROOT / place] if "." in place else (ROOT / place).rglob("*"))]
    return [
        (str(path.relative_to(ROOT)), number, line)
        for path in files
        if path.suffix in KINDS and path.is_file() and path.relative_to(ROOT) not in OTHER_LETTERS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    ]


def complaint(line: str) -> str | None:
    return next((rule for rule, patterns in WRONG.items() for p in patterns if re.search(p, line)), None)


def test_every_file_has_the_letters_of_the_notes() -> None:
    found = [f"{path}:{n}: {rule}: {line.strip()}" for path, n, line in lines() if (rule := complaint(line))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "h_t = φ(W x_t + U h_{t−1} + b)",
        "x.g = W_g x_t + b_g",
        "h.g = U_g h_{t−1} + b_hg",
        "n = tanh(x_n + U_n (r ⊙ h))",
        "a = b + U s_{t−1}",
        "a = U @ h",
        "a = W @ x + b",
        'U = weights["weight_hh"]',
        'U, b = weights["weight_hh"], None',
        'W = weights.get("weight_ih")',
        "multiplies what U multiplies, the same at every step",
        "MinGRU has no product with U",
        "| Elman, orthogonal U |",
        "h_t = W_hx x_t + W_hh h_{t−1}",
        "a vocabulary of V tokens",
        "def __init__(self, V: int, H: int) -> None:",
    ],
)
def test_a_wrong_letter_is_found(line: str) -> None:
    assert complaint(line)


@pytest.mark.parametrize(
    "line",
    [
        "a = b + W s_{t−1} + U x_t",
        "h.g = W_g h_{t−1} + b_hg, x.g = U_g x_t + b_g",
        "score(q, m) = v · tanh(W_q q + W_k m)",
        'W, b_h = weights.get("weight_hh"), weights.get("bias_hh")',
        "self.weight_x = empty(D)  # U",
        "f_k = σ(U_f x + W_f h_k + b_f)",
        "U+2581 x, W = innerWidth, U.S. headlines",
        "const W = innerWidth < 760 ? 400 : 720; xLabel",
    ],
)
def test_a_right_one_is_left_alone(line: str) -> None:
    assert complaint(line) is None
