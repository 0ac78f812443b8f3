"""A program as a C++ function on the numbers of one unit of one row.

Every kind of place is an array in registers: a kernel loads what `reads` names, calls the function, and stores what
`writes` names. The text is plain C++ on `real`, so that any compiler can check it: the functions of prelude.cu that it
calls have a twin for the CPU in the tests.
"""

from __future__ import annotations

import math

from recur.program.writer import Code

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
    "relu": "{0} < real(0) ? real(0) : {0}",
    "sigmoid": "sigmoid_of({0})",
    "sigmoid_sum": "sigmoid_of({0} + {1})",
    "tanh": "tanh_of({0})",
    "tanh_sum": "tanh_of({0} + {1})",
    "d_sigmoid": "{0} * {1} * (real(1) - {1})",
    "d_tanh": "{0} * (real(1) - {1} * {1})",
    "exp": "exp_of({0})",
    "log": "log_of({0})",
    "log1p": "log1p_of({0})",
    "expm1": "expm1_of({0})",
    "sqrt": "sqrt_of({0})",
    "sin": "sin_of({0})",
    "cos": "cos_of({0})",
    "erf": "erf_of({0})",
    "abs": "{0} < real(0) ? -{0} : {0}",
    "sign": "{0} > real(0) ? real(1) : {0} < real(0) ? real(-1) : {0} == {0} ? real(0) : {0}",
    "less": "{0} < {1} ? real(1) : real(0)",
    "less_equal": "{0} <= {1} ? real(1) : real(0)",
    "equal": "{0} == {1} ? real(1) : real(0)",
    "select": "{0} != real(0) ? {1} : {2}",
    "minimum": "{0} != {0} ? {0} : {1} != {1} ? {1} : {0} < {1} ? {0} : {1}",
    "maximum": "{0} != {0} ? {0} : {1} != {1} ? {1} : {0} > {1} ? {0} : {1}",
    "sum": "{to} + {0}",
}
"""As the core's interpreter has them; `sum` adds to what its place holds."""

FORWARD = ("share", "product", "before", "extra", "after", "saved")
BACKWARD = (
    "share",
    "saved",
    "before",
    "after",
    "extra",
    "d_after",
    "d_share",
    "d_product",
    "d_before",
    "d_state",
    "sum",
)
"""The arguments of a function, in this order: one array for each kind of place."""


def reads(code: Code, kind: str) -> list[int]:
    """Which places of a kind a program reads before it has written them itself."""
    found: set[int] = set()
    written: set[int] = set()
    for op, (to, *operands) in code.instructions:
        found |= {p for p in (*operands, *([to] if op == "sum" else ())) if p not in written}
        written.add(to)
    return sorted(code.places[p][1] for p in found if code.places[p][0] == kind)


def writes(code: Code, kind: str) -> list[int]:
    found = {operands[0] for _, operands in code.instructions}
    return sorted(code.places[p][1] for p in found if code.places[p][0] == kind)


def number(value: float) -> str:
    """A constant, to the last bit."""
    if math.isnan(value):
        return "real(NAN)"
    if math.isinf(value):
        return "real(INFINITY)" if value > 0 else "real(-INFINITY)"
    return f"real({value!r})"


def printed(name: str, code: Code, kinds: tuple[str, ...], sums: int | None = None) -> str:
    """The function of a program. `sums`: only so many of what it sums up are wanted."""

    def place(p: int) -> str:
        kind, index = code.places[p]
        if kind == "constant":
            return number(code.numbers[index])
        return f"t{index}" if kind == "temp" else f"{kind}[{index}]"

    arguments = ", ".join(f"real* {kind}" for kind in kinds)
    lines = [f"FUNCTION void {name}({arguments}) {{"]
    if code.temps:
        lines.append(f"    real {', '.join(f't{k}' for k in range(code.temps))};")
    for op, (to, *operands) in code.instructions:
        if op == "sum" and sums is not None and code.places[to][1] >= sums:
            continue
        value = OPERATIONS[op].format(*map(place, operands), to=place(to))
        lines.append(f"    {place(to)} = {value};")
    return "\n".join([*lines, "}"])
