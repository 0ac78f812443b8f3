"""A cell's program, instruction by instruction, on whatever numbers are: tensors of PyTorch, expressions, names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from recur.compiler.assembly import Code

Value = TypeVar("Value")
Apply = Callable[..., Value]
"""apply(operation, *operands): one of recur.compiler.expressions.OPERATIONS."""


def interpret(
    code: Code,
    given: Mapping[str, Sequence[Value]],
    number: Callable[[float], Value],
    apply: Apply[Value],
) -> list[Value]:
    """The states that a forward program returns.

    given   by kind of place: share, product, before, extra
    number  makes a constant
    """
    places: dict[int, Value] = {}
    for p, (kind, k) in enumerate(code.places):
        if kind == "constant":
            places[p] = number(code.numbers[k])
        elif kind in given:
            places[p] = given[kind][k]
    for op, (to, *operands) in code.instructions:
        places[to] = _applied(op, [places[p] for p in operands], apply)
    after = {k: places[p] for p, (kind, k) in enumerate(code.places) if kind == "after"}
    return [after[k] for k in sorted(after)]


def _applied(op: str, values: list[Value], apply: Apply[Value]) -> Value:
    """One instruction, of two operations where it is fused; see recur.compiler.assembly.FUSED."""
    match op, values:
        case "copy", [a]:
            return a
        case "sigmoid_sum" | "tanh_sum", [a, b]:
            return apply(op.removesuffix("_sum"), apply("add", a, b))
        case "multiply_add", [a, b, c]:
            return apply("add", apply("mul", a, b), c)
        case "multiply_sub", [a, b, c]:
            return apply("sub", apply("mul", a, b), c)
        case "sub_multiply", [a, b, c]:
            return apply("sub", c, apply("mul", a, b))
        case _:
            return apply(op, *values)
