"""A program as a C++ function on the numbers of one unit of one row.

Every kind of place is an array in registers: a kernel loads what `reads` names, calls the function, and stores what
`writes` names. The text is plain C++ on `real`, so that any compiler can check it: the functions of prelude.cu that it
calls have a twin for the CPU in the tests.
"""

from __future__ import annotations

import math
from itertools import pairwise

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

FORWARD_MAP = ("share", "extra", "after", "matrix", "offset")
BACKWARD_MAP = ("share", "saved", "before", "after", "extra", "d_after", "matrix", "offset")
SCANS = ("scan_state", "scan_back_state")


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
    return _function(name, code, kinds, _lines(code, len(code.instructions), sums))


def _lines(code: Code, count: int, sums: int | None = None) -> list[str]:
    """The first instructions of a program."""
    lines = []
    for op, (to, *operands) in code.instructions[:count]:
        if op == "sum" and sums is not None and code.places[to][1] >= sums:
            continue
        value = OPERATIONS[op].format(*(_place(code, p) for p in operands), to=_place(code, to))
        lines.append(f"{_place(code, to)} = {value};")
    return lines


def _place(code: Code, p: int) -> str:
    kind, index = code.places[p]
    if kind == "constant":
        return number(code.numbers[index])
    return f"t{index}" if kind == "temp" else f"{kind}[{index}]"


def _function(name: str, code: Code, kinds: tuple[str, ...], lines: list[str]) -> str:
    arguments = ", ".join(f"real* {kind}" for kind in kinds)
    temps = [f"real {', '.join(f't{k}' for k in range(code.temps))};"] if code.temps else []
    return "\n".join([f"FUNCTION void {name}({arguments}) {{", *(f"    {line}" for line in [*temps, *lines]), "}"])


def stage(code: Code) -> list[int]:
    """The states that a program along time carries, if they are one stage and no other state's past is read; or none.

    Only then is a step one affine map: what else follows from it has to wait for nothing.
    """
    scans = [k for k, (op, _) in enumerate(code.instructions) if op in SCANS]
    side_by_side = all(later == k + 1 for k, later in pairwise(scans))
    if not side_by_side or any(op == "shift" for op, _ in code.instructions):
        return []
    return [code.places[code.instructions[k][1][0]][1] for k in scans]


def printed_map(name: str, code: Code, kinds: tuple[str, ...]) -> str:
    """A step of one stage as a function that finds its A, row by row, and b: s' = A s + b.

    Of a program along time that is what stands before its scan, and the scan's operands.
    """
    states = len(stage(code))
    first = next(k for k, (op, _) in enumerate(code.instructions) if op in SCANS)
    group = [operands for _, operands in code.instructions[first : first + states * (1 + states)]]
    lines = [f"offset[{k}] = {_place(code, operands[2])};" for k, operands in enumerate(group[:states])]
    lines += [f"matrix[{k}] = {_place(code, operands[1])};" for k, operands in enumerate(group[states:])]
    return _function(name, code, kinds, _lines(code, first) + lines)
