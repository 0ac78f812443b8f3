"""Reverse-mode derivatives of expressions; the result is expressions in the same graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from recur.compiler.expressions import Expressions


class ExpressionGradients(NamedTuple):
    """Gradients of a scalar L with respect to leaves, states and intermediate values."""

    leaves: dict[tuple[str, int], int]
    """∂L/∂leaf, by role and index."""
    states: list[int]
    """Full ∂L/∂state: the incoming gradient, and the part through the other states of the step."""
    values: dict[int, int]
    """∂L/∂value of every value that has a gradient."""


def differentiate(t: Expressions, states: Sequence[int], gradients: Sequence[int]) -> ExpressionGradients:
    """Differentiate a step, given the incoming gradient ∂L/∂state of every next state."""
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
            for arg, gradient_of_arg in zip(args, DERIVATIVES[op](t, adjoint[value], value, *args), strict=True):
                if gradient_of_arg is not None and t[arg].op != "number":
                    add(arg, gradient_of_arg)
    # A state that is returned unchanged is the same value before and after the step. Its adjoint would then include
    # what this step does with it, so its full gradient is the incoming one.
    whole = [g if t[state].op == "s" else adjoint[state] for state, g in zip(states, gradients, strict=True)]
    return ExpressionGradients(found, whole, adjoint)


Rule = Callable[..., Sequence[int | None]]
"""`rule(t, g, y, *args)`: given y = op(args) and its gradient g, return the gradient of each argument (None: zero)."""


def _quotient(t: Expressions, g: int, y: int, a: int, b: int) -> list[int]:
    share = t("div", g, b)
    return [share, t("neg", t("mul", share, y))]


def _relu(t: Expressions, g: int, y: int, a: int) -> list[int]:
    """Use the result y, which is often a state and therefore in memory."""
    return [t("select", t("less", t.number(0), y), g, t.number(0))]


def _erf(t: Expressions, g: int, y: int, a: int) -> list[int]:
    bell = t("exp", t("neg", t("mul", a, a)))
    return [t("mul", g, t("mul", t.number(2 / math.sqrt(math.pi)), bell))]


def _extreme(t: Expressions, g: int, wins: int, a: int, b: int) -> list[int]:
    """Split the gradient of a minimum or maximum. wins: 1 where a is the result; equal arguments get half each."""
    share = t("add", wins, t("mul", t.number(0.5), t("equal", a, b)))
    return [t("mul", g, share), t("mul", g, t("sub", t.number(1), share))]


def _select(t: Expressions, g: int, y: int, which: int, a: int, b: int) -> list[int | None]:
    zero = t.number(0)
    return [None, t("select", which, g, zero), t("select", which, zero, g)]


def _none(t: Expressions, g: int, y: int, *args: int) -> list[None]:
    return [None] * len(args)


DERIVATIVES: dict[str, Rule] = {
    "neg": lambda t, g, y, a: [t("neg", g)],
    "add": lambda t, g, y, a, b: [g, g],
    "sub": lambda t, g, y, a, b: [g, t("neg", g)],
    "mul": lambda t, g, y, a, b: [t("mul", g, b), t("mul", g, a)],
    "div": _quotient,
    "sigmoid": lambda t, g, y, a: [t("d_sigmoid", g, y)],
    "tanh": lambda t, g, y, a: [t("d_tanh", g, y)],
    "relu": _relu,
    "exp": lambda t, g, y, a: [t("mul", g, y)],
    "expm1": lambda t, g, y, a: [t("mul", g, t("add", y, t.number(1)))],
    "log": lambda t, g, y, a: [t("div", g, a)],
    "log1p": lambda t, g, y, a: [t("div", g, t("add", a, t.number(1)))],
    "sqrt": lambda t, g, y, a: [t("div", g, t("mul", t.number(2), y))],
    "sin": lambda t, g, y, a: [t("mul", g, t("cos", a))],
    "cos": lambda t, g, y, a: [t("neg", t("mul", g, t("sin", a)))],
    "erf": _erf,
    "abs": lambda t, g, y, a: [t("mul", g, t("sign", a))],
    "minimum": lambda t, g, y, a, b: _extreme(t, g, t("less", a, b), a, b),
    "maximum": lambda t, g, y, a, b: _extreme(t, g, t("less", b, a), a, b),
    "select": _select,
    "sign": _none,
    "less": _none,
    "less_equal": _none,
    "equal": _none,
}
"""Derivative rules by operation. Where a function has a kink, the value is that of PyTorch."""
