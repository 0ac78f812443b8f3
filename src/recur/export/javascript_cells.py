"""A cell's program in JavaScript: one unit of one step, on numbers that lie in buffers.

What a program reads is read first, and what it makes is stored last, so that a state may be written where the one
before it stood.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from recur.compiler.assembly import Code

OPERATIONS = {
    "copy": "{0}",
    "neg": "-{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "multiply_add": "{0} * {1} + {2}",
    "multiply_sub": "{0} * {1} - {2}",
    "sub_multiply": "{2} - {0} * {1}",
    "relu": "{0} < 0 ? 0 : {0}",
    "sigmoid": "sigmoid({0})",
    "sigmoid_sum": "sigmoid({0} + {1})",
    "tanh": "Math.tanh({0})",
    "tanh_sum": "Math.tanh({0} + {1})",
    "d_sigmoid": "{0} * {1} * (1 - {1})",
    "d_tanh": "{0} * (1 - {1} * {1})",
    "exp": "Math.exp({0})",
    "log": "Math.log({0})",
    "log1p": "Math.log1p({0})",
    "expm1": "Math.expm1({0})",
    "sqrt": "Math.sqrt({0})",
    "sin": "Math.sin({0})",
    "cos": "Math.cos({0})",
    "erf": "erf({0})",
    "abs": "Math.abs({0})",
    "sign": "Math.sign({0})",
    "less": "{0} < {1} ? 1 : 0",
    "less_equal": "{0} <= {1} ? 1 : 0",
    "equal": "{0} === {1} ? 1 : 0",
    "select": "{0} ? {1} : {2}",
    "minimum": "least({0}, {1})",
    "maximum": "most({0}, {1})",
}
"""As recur.compiler has them. Of names and numbers alone: an operand is never an expression without parentheses."""


def number(value: float) -> str:
    """A constant, to the last bit; in parentheses where it has a sign."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "(-Infinity)"
    text = repr(float(value)).removesuffix(".0")
    return f"({text})" if text.startswith("-") else text


def cell_lines(code: Code, places: Mapping[str, Sequence[str]]) -> list[str]:
    """The lines of a forward program, with what stands for each of its places by kind: share, product, before, extra
    and after."""
    names: dict[int, str] = {}
    lines: list[str] = []
    made = {operands[0] for _, operands in code.instructions}
    for p, (kind, k) in enumerate(code.places):
        if kind == "constant":
            names[p] = number(code.numbers[k])
        elif kind == "temp":
            names[p] = f"t{k}"
        else:
            names[p] = f"{kind}{k}"
            if kind in places and kind != "after" and _is_read(code, p):
                lines.append(f"{'let' if p in made else 'const'} {kind}{k} = {places[kind][k]};")
    temps = sorted({names[p] for p in made if code.places[p][0] in ("temp", "after")})
    if temps:
        lines.append(f"let {', '.join(temps)};")
    for op, (to, *operands) in code.instructions:
        lines.append(f"{names[to]} = {OPERATIONS[op].format(*(names[p] for p in operands))};")
    lines += [f"{places['after'][k]} = {names[p]};" for p, (kind, k) in enumerate(code.places) if kind == "after"]
    return lines


def _is_read(code: Code, p: int) -> bool:
    return any(p in operands[1:] for _, operands in code.instructions)
