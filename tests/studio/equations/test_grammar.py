"""Equations as they are written: one meaning in many spellings, and what cannot be read is named with its place."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from recur.i18n import translate
from recur.studio.equations import EquationError, Equations, read_equations
from recur.studio.equations.textbook import EXAMPLES, TEXTBOOK


def meaning(equations: Equations) -> list[tuple[object, ...]]:
    """All that a text says, without how it says it."""
    return [
        (node.op, node.args, node.name, node.size, node.columns, node.number, node.signs) for node in equations.nodes
    ]


ELMAN = "h' = tanh(U x + W h + b)"


@pytest.mark.parametrize(
    "text",
    [
        "h_t = tanh(U x_t + W h_{t-1} + b)",
        "h_t = tanh(U x_t + W h_{t−1} + b)",
        "hₜ = tanh(U xₜ + W hₜ₋₁ + b)",
        "h^{(t)} = tanh(U x^{(t)} + W h^{(t-1)} + b)",
        "h[t] = tanh(U x[t] + W h[t-1] + b)",
        r"h_t = \tanh(U x_t + W h_{t-1} + b)",
        "h_t = tanh(Ux_t + Wh_{t-1} + b)",
        "h′ = tanh（Ux ＋ Wh ＋ b）",
        "h = tanh(U·x + W @ h + b)",
        "# Elman\n\nh = tanh(U x + W h + b);",
    ],
)
def test_spellings_of_one_equation(text: str) -> None:
    assert meaning(read_equations(text)) == meaning(read_equations(ELMAN))


def test_signs_that_mean_element_by_element() -> None:
    text = "z = σ(U_z x)\nh' = (1 − z) ⊙ h + z ⊙ tanh(U x)"
    other = "z = sigmoid(U_{z} x)\nh' = (1 - z) * h + z × tanh(U x)"
    assert meaning(read_equations(other)) == meaning(read_equations(text))
    latex = r"h'_t = ..."
    with pytest.raises(EquationError):
        read_equations(latex)


def test_accents_order_and_letters() -> None:
    found = read_equations(
        "h_t = (1 - z_t) ⊙ h_{t-1} + z_t ⊙ \\tilde{h}_t\nz_t = σ(U_z x_t)\nh̃_t = tanh(U x_t + W h_{t-1})"
    )
    assert list(found.names) == ["z", "h̃", "h"], "each after what it reads"
    assert list(found.states) == ["h"]
    assert list(found.weights) == ["U_z", "U", "W"]
    joined = read_equations("C_t = f_t ⊙ C_{t-1} + W_C·[h_{t-1}, x_t]\nf_t = σ(W_f·[h_{t-1}, x_t])\nh_t = tanh(C_t)")
    assert joined.weights["W_f"] == (("H",), ("H", "D"))
    assert list(joined.states) == ["h", "C"], "the output is h"
    assert [node.formula for node in joined.nodes if node.op == "beside"] == ["[h_{t−1}, x_t]"], "once for both"


def test_the_notes_own_line() -> None:
    found = read_equations(r"s_t = \tanh(Ux_t + Ws_{t-1} + b_s)")
    assert list(found.states) == ["s"]
    assert [node.formula for node in found.nodes if node.args] == [
        "U x_t", "W s_{t−1}", "U x_t + W s_{t−1} + b_s", "tanh(a_{s,t})",
    ]  # fmt: skip


MISTAKES = {
    "": (1, 1, "an equation begins with a name", "方程应以名称开头"),
    "h' = tanh(U x + W h": (1, 20, "')' expected, got the end of the line", "此处应为 ')'，却是 行尾"),
    "z = σ(U x)\nh' = h + * z": (2, 10, "a name, a number or a bracket expected, got '*'", "此处应为名称、数字或括号"),
    "h' = sigmiod(U x)": (1, 6, "unknown function sigmiod", "不认识函数 sigmiod"),
    "h' = h + x": (1, 6, "vectors of two lengths meet", "长度不同的向量"),
    "h' = (1 - b) h + U x": (1, 14, "a sign is missing before 'h'", "'h' 之前缺少运算符"),
    "h_t = tanh(U x_t + W h_t)": (1, 22, "h would need itself; the state before the step is h_{t−1}", "用到了它自己"),
    "h' = W": (1, 6, "W is a matrix", "W 是矩阵"),
    "y = U x": (1, 1, "nothing is carried from step to step", "没有任何量从一步传到下一步"),
    "h' = tanh(W h + b)": (1, 1, "the input x is not read", "没有用到输入 x"),
    "h' = U x\nh' = h": (2, 1, "h is defined twice", "h 被定义了两次"),
    "h' = U x + W x + W h": (1, 18, "the weight W is needed in two shapes", "权重 W 在两处需要不同的形状"),
    "h' = U x + z_t + h": (1, 12, "no equation defines z", "没有方程定义 z"),
    "h_t = U x_t + h + h_{t-1}": (1, 15, "h is a state: write h_t or h_{t−1}", "h 是状态"),
    "h' = U x_{t-1} + h": (1, 8, "a step reads x_t", "一步只读 x_t"),
    "h' = U x + h_{t+1}": (1, 12, "a step knows h_t and h_{t−1} only", "只有 h_t 和 h_{t−1}"),
    "h' = U x + h % 2": (1, 14, "'%' is no sign of an equation", "不能有符号 '%'"),
    "h' = U x + h_{": (1, 12, "a subscript that is not closed", "下标没有闭合"),
    "h' = U x + \\frac{1}{2}": (1, 12, "\\frac is not among the commands", "不认识命令 \\frac"),
    "3 = U x": (1, 1, "an equation begins with a name", "方程应以名称开头"),
    "x = U x": (1, 1, "x cannot be defined", "x 不能被定义"),
    "h_{t-1} = U x": (1, 1, "the state before the step is given", "上一步的状态是已知量"),
    "h' = U x + W 2": (1, 12, "W multiplies a vector, not a number", "W 乘的应是向量"),
    "h' = b · h + U x": (1, 8, "between two vectors write ⊙", "两个向量之间请写 ⊙"),
    "h' = U x + h ^ z": (1, 16, "a number expected, got 'z'", "此处应为数字"),
    "h' = 2\nz = U x": (1, 1, "the state h must be a vector", "状态 h 必须是"),
    "h' = U x + [2, 3]": (1, 12, "vectors stand side by side in [ ]", "拼接的是向量"),
    "h' = U x + " + "(" * 60 + "h" + ")" * 60: (1, 52, "too many brackets", "括号嵌套太深"),
    "h' = U x" + " + h" * 400: (1, 1, "at most 1500 characters", "最多 1500 个字符"),
    "h' = U x + " + "2 " * 300 + "h": (1, 302, "too long for one equation", "一个方程太长"),
    "h' = U x" + " * h" * 200: (1, 302, "too long for one equation", "一个方程太长"),
    "h' = U x + " + "2 " * 140 + "h": (1, 1, "too much for one step", "一步之内运算太多"),
    "h' = U x + 1e999": (1, 12, "a number of this size", "数字太大"),
    "h' = tanh U x": (1, 11, "'(' expected, got 'U'", "此处应为 '('"),
    "h' = __import__('os').system('true')": (1, 6, "'_' is no sign", "不能有符号 '_'"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_named_with_their_place_in_both_languages(text: str) -> None:
    line, column, english, chinese = MISTAKES[text]
    with pytest.raises(EquationError) as found:
        read_equations(text)
    assert (found.value.line, found.value.column) == (line, column)
    assert str(found.value).startswith(f"line {line}, column {column}: ")
    assert english in str(found.value)
    said = translate(found.value.args[0], "zh")
    assert said.startswith(f"第 {line} 行第 {column} 列：")
    assert chinese in said


def test_whatever_is_typed_is_read_or_refused_in_a_line() -> None:
    dice = random.Random(0)
    texts = [*EXAMPLES.values(), *(book.text for book in TEXTBOOK.values())]
    signs = "hxzUWb01.()[]{}_^'=+-*/⊙·σ²\\ \n;,$#t−₋ₜ̃'\0\u2028é"
    read_ones = 0
    for _ in range(600):
        text = list(dice.choice(texts))
        for _ in range(dice.randrange(1, 6)):
            place = dice.randrange(len(text))
            text[place : place + dice.randrange(3)] = dice.choices(signs, k=dice.randrange(3))
        with suppress(EquationError):
            read_equations("".join(text))
            read_ones += 1
    assert read_ones > 20
