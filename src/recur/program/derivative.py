"""The derivative of a step's expressions, in reverse mode: expressions again, in the same terms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recur.program.expressions import Expressions


def differentiate(t: Expressions, states: Sequence[int], gradients: Sequence[int]) -> dict[tuple[str, int], int]:
    """∂L/∂leaf for every leaf of a step, given ∂L/∂state as values: reverse mode, from the last value to the first."""
    adjoint: dict[int, int] = {}

    def add(value: int, gradient: int) -> None:
        adjoint[value] = t("add", adjoint[value], gradient) if value in adjoint else gradient

    for state, gradient in zip(states, gradients, strict=True):
        add(state, gradient)
    found: dict[tuple[str, int], int] = {}
    for value in reversed(t.reached_from(states)):
        if value not in adjoint:
            continue
        op, args, leaf = t[value]
        if op in ("x", "h", "s", "w"):
            found[op, int(leaf)] = adjoint[value]
        elif op != "number":
            for arg, share in zip(args, _gradients(t, op, args, value, adjoint[value]), strict=True):
                if share is not None and t[arg].op != "number":
                    add(arg, share)
    return found


def _gradients(t: Expressions, op: str, args: tuple[int, ...], y: int, g: int) -> list[int | None]:
    """The gradient of each argument of y = op(args), given that of y; at a kink, what PyTorch takes."""
    a, b = args[0], args[-1]
    half, one, two = t.number(0.5), t.number(1), t.number(2)
    match op:
        case "neg":
            return [t("neg", g)]
        case "add":
            return [g, g]
        case "sub":
            return [g, t("neg", g)]
        case "mul":
            return [t("mul", g, b), t("mul", g, a)]
        case "div":
            share = t("div", g, b)
            return [share, t("neg", t("mul", share, y))]
        case "sigmoid" | "tanh":
            return [t(f"d_{op}", g, y)]
        case "relu":  # from its result, which is often a state and there anyway
            return [t("select", t("less", t.number(0), y), g, t.number(0))]
        case "exp":
            return [t("mul", g, y)]
        case "expm1":
            return [t("mul", g, t("add", y, one))]
        case "log":
            return [t("div", g, a)]
        case "log1p":
            return [t("div", g, t("add", a, one))]
        case "sqrt":
            return [t("div", g, t("mul", two, y))]
        case "sin":
            return [t("mul", g, t("cos", a))]
        case "cos":
            return [t("neg", t("mul", g, t("sin", a)))]
        case "erf":
            bell = t("exp", t("neg", t("mul", a, a)))
            return [t("mul", g, t("mul", t.number(2 / math.sqrt(math.pi)), bell))]
        case "abs":
            return [t("mul", g, t("sign", a))]
        case "minimum" | "maximum":  # shared where both are equal
            wins = t("less", a, b) if op == "minimum" else t("less", b, a)
            share = t("add", wins, t("mul", half, t("equal", a, b)))
            return [t("mul", g, share), t("mul", g, t("sub", one, share))]
        case "select":
            nothing = t.number(0)
            return [None, t("select", a, g, nothing), t("select", a, nothing, g)]
        case "sign" | "less" | "less_equal" | "equal":
            return [None] * len(args)
    raise AssertionError(op)
