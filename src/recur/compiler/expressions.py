"""Graph of pointwise expressions, in which equal expressions are one node, and its reverse-mode derivative.

A value is the index of a node. Leaves are the arguments of a step (`x.i`, `h.i`, `s.c`, `w.p`), numbers and, in the
backward pass, the gradients of the next states. The same operation on the same values gives the same index, so common
subexpressions are shared, also between forward and backward pass. Derivatives are expressions in the same graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

LEAVES = ("x", "h", "s", "w", "g", "number")

OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "neg": torch.neg,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "d_sigmoid": lambda g, y: g * y * (1 - y),
    "d_tanh": lambda g, y: g * (1 - y * y),
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "atan": torch.atan,
    "floor": torch.floor,
    "round": torch.round,
    "pow": torch.pow,
    "remainder": torch.remainder,
    "abs": torch.abs,
    "sign": torch.sign,
    "less": lambda a, b: (a < b).to(a.dtype),
    "less_equal": lambda a, b: (a <= b).to(a.dtype),
    "equal": lambda a, b: (a == b).to(a.dtype),
    "select": lambda which, a, b: torch.where(which != 0, a, b),
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "custom": lambda y, *slope: y,
}
"""The operations of a program and their meaning. Comparisons return 1 or 0. `custom(y, a, d)` has the value y and the
derivative d with respect to a; `custom(y)` has none."""

COSTLY = {
    "sigmoid", "tanh", "exp", "log", "log1p", "expm1", "sqrt", "sin", "cos", "erf", "atan", "pow", "remainder", "div",
}  # fmt: skip
"""Operations whose results are saved for the backward pass rather than recomputed."""


class Node(NamedTuple):
    """One operation or leaf."""

    op: str
    args: tuple[int, ...] = ()
    leaf: float = 0
    """The index of a leaf within its role; the number itself for `number`."""


class Expressions:
    """Nodes by index; calling the object adds an operation and simplifies it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._index: dict[Node, int] = {}

    def __getitem__(self, value: int) -> Node:
        return self.nodes[value]

    def _make(self, node: Node) -> int:
        if node not in self._index:
            self._index[node] = len(self.nodes)
            self.nodes.append(node)
        return self._index[node]

    def leaf(self, role: str, index: int) -> int:
        return self._make(Node(role, (), index))

    def number(self, value: float) -> int:
        return self._make(Node("number", (), float(value)))

    def number_of(self, value: int) -> float | None:
        node = self.nodes[value]
        return node.leaf if node.op == "number" else None

    def __call__(self, op: str, *args: int) -> int:
        """Return the value of an operation, simplified where an identity or constants allow it."""
        numbers = [self.number_of(arg) for arg in args]
        first, last = numbers[0], numbers[-1]
        match op:
            case "add" if first == 0:
                return args[1]
            case "add" | "sub" if last == 0:
                return args[0]
            case "sub" if first == 0:
                return self("neg", args[1])
            case "mul" if first == 0 or last == 0:
                return self.number(0)
            case "mul" if first == 1:
                return args[1]
            case "mul" | "div" if last == 1:
                return args[0]
            case "add" if self.nodes[args[1]].op == "neg":
                return self("sub", args[0], self.nodes[args[1]].args[0])
            case "add" if self.nodes[args[0]].op == "neg":
                return self("sub", args[1], self.nodes[args[0]].args[0])
            case "neg" if self.nodes[args[0]].op == "neg":
                return self.nodes[args[0]].args[0]
            case "d_sigmoid" | "d_tanh" | "div" if first == 0:
                return self.number(0)
            case "select" if args[1] == args[2]:
                return args[1]
        if all(number is not None for number in numbers) and op != "custom":
            return self.number(OPERATIONS[op](*(torch.tensor(n, dtype=torch.float64) for n in numbers)).item())
        if op in ("add", "mul", "equal", "minimum", "maximum"):  # commutative: one order, so that equal terms match
            args = tuple(sorted(args))
        return self._make(Node(op, args))

    def plain(self, value: int) -> int:
        """Return a value without its own derivative."""
        while self.nodes[value].op == "custom":
            value = self.nodes[value].args[0]
        return value

    def reached_from(self, values: Iterable[int], known: Collection[int] = ()) -> list[int]:
        """Return `values` and all that they depend on, in topological order, without the known ones."""
        seen: set[int] = set(known)
        todo = list(values)
        while todo:
            value = todo.pop()
            if value not in seen:
                seen.add(value)
                todo += self.nodes[value].args
        return sorted(seen.difference(known))

    def evaluate(
        self, values: Iterable[int], leaves: Mapping[tuple[str, int], Tensor], known: dict[int, Tensor] | None = None
    ) -> list[Tensor]:
        """Compute values in PyTorch. `known` holds results that are reused, and receives all new ones."""
        values = list(values)
        like = next(iter(leaves.values()))
        known = {} if known is None else known
        for value in self.reached_from(values, known):
            op, args, leaf = self.nodes[value]
            if op == "number":
                # torch.full runs on the device; a copy from the host could not be captured in a CUDA graph.
                known[value] = torch.full((), leaf, dtype=like.dtype, device=like.device)
            elif op in LEAVES:
                known[value] = leaves[op, int(leaf)]
            else:
                known[value] = OPERATIONS[op](*(known[arg] for arg in args))
        return [known[value] for value in values]


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


def _atan(t: Expressions, g: int, y: int, a: int) -> list[int]:
    return [t("div", g, t("add", t("mul", a, a), t.number(1)))]


def _power(t: Expressions, g: int, y: int, a: int, b: int) -> list[int]:
    """Differentiate aᵇ. As in PyTorch, a constant a⁰ has the slope 0, and 0ᵇ with b ≥ 0 has the slope 0 in b."""
    zero = t.number(0)
    slope = t("mul", b, t("pow", a, t("sub", b, t.number(1))))
    of_a = t("select", t("equal", b, zero), zero, t("mul", g, slope))
    constant = t("mul", t("equal", a, zero), t("less_equal", zero, b))
    return [of_a, t("select", constant, zero, t("mul", g, t("mul", y, t("log", a))))]


def _remainder(t: Expressions, g: int, y: int, a: int, b: int) -> list[int]:
    """Differentiate y = a − b n. The whole number n = ⌊a / b⌋ is taken from y, because a / b may round up to n + 1."""
    return [g, t("neg", t("mul", g, t("round", t("div", t("sub", a, y), b))))]


def _extreme(t: Expressions, g: int, wins: int, a: int, b: int) -> list[int]:
    """Split the gradient of a minimum or maximum. wins: 1 where a is the result; equal arguments get half each."""
    share = t("add", wins, t("mul", t.number(0.5), t("equal", a, b)))
    return [t("mul", g, share), t("mul", g, t("sub", t.number(1), share))]


def _select(t: Expressions, g: int, y: int, which: int, a: int, b: int) -> list[int | None]:
    zero = t.number(0)
    return [None, t("select", which, g, zero), t("select", which, zero, g)]


def _custom(t: Expressions, g: int, y: int, value: int, *slope: int) -> list[int | None]:
    return [None, t("mul", g, slope[1]), None] if slope else [None]


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
    "atan": _atan,
    "pow": _power,
    "remainder": _remainder,
    "floor": _none,
    "round": _none,
    "abs": lambda t, g, y, a: [t("mul", g, t("sign", a))],
    "minimum": lambda t, g, y, a, b: _extreme(t, g, t("less", a, b), a, b),
    "maximum": lambda t, g, y, a, b: _extreme(t, g, t("less", b, a), a, b),
    "select": _select,
    "custom": _custom,
    "sign": _none,
    "less": _none,
    "less_equal": _none,
    "equal": _none,
}
"""Derivative rules by operation. Where a function has a kink, the value is that of PyTorch."""
