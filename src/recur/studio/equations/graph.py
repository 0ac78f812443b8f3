"""Operations on vectors, what each of them gives and what it passes back.

A graph is a list of nodes, each after those that it reads; one step of a recurrence is a pass over it. Leaves are the
input, the states before the step, weights and numbers. With y = op(a, b, …) and g = ∂L/∂y, `backward` gives ∂L/∂a, ….
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from recur.reference.network import softmax
from recur.reference.sequence import Array, sigmoid

LEAVES = ("input", "before", "weight", "number")

Size = tuple[str, ...]
"""Of a vector: ("H",) units, ("D",) inputs, ("K",) outputs, and one after the other for vectors side by side; () for a
number."""


@dataclass(frozen=True)
class Node:
    op: str
    args: tuple[int, ...] = ()
    name: str = ""
    """Of a leaf: the state or the weight. Of other nodes: what the equations call it."""
    size: Size = ("H",)
    columns: Size = ()
    """Of a matrix."""
    number: float = 0.0
    signs: tuple[int, ...] = ()
    symbol: str = ""
    """How it is written where others use it."""
    formula: str = ""
    """What it is made of, in the symbols of those."""
    line: int = 0
    """In the text of the equations, from 1; 0 where it is none of theirs."""


def _same(a: Array) -> Array:
    return a


FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "same": (_same, lambda a, y: np.ones_like(y)),
    "σ": (sigmoid, lambda a, y: y * (1 - y)),
    "tanh": (np.tanh, lambda a, y: 1 - y**2),
    "ReLU": (lambda a: np.maximum(a, 0.0), lambda a, y: (y > 0).astype(np.float64)),
    "exp": (np.exp, lambda a, y: y),
    "log": (np.log, lambda a, y: 1 / a),
    "√": (np.sqrt, lambda a, y: 0.5 / y),
    "softplus": (lambda a: np.logaddexp(a, 0.0), lambda a, y: sigmoid(a)),
    "sin": (np.sin, lambda a, y: np.cos(a)),
    "cos": (np.cos, lambda a, y: -np.sin(a)),
    "abs": (np.abs, lambda a, y: np.sign(a)),
}
"""φ(a), and φ'(a) from a and y = φ(a)."""


def forward(node: Node, args: Sequence[Array], target: int) -> Array:
    """The value of a node that is no leaf; `target` is the number of the symbol to come."""
    match node.op:
        case "product":
            found = args[0] @ args[1]
        case "sum":
            found = sum((sign * a for sign, a in zip(node.signs, args, strict=True)), np.zeros(()))
        case "times":
            found = args[0] * args[1]
        case "quotient":
            found = args[0] / args[1]
        case "power":
            found = args[0] ** node.number
        case "beside":
            found = np.concatenate(args)
        case "softmax":
            found = softmax(args[0])
        case "loss":
            found = -np.log(args[0][target : target + 1])
        case _:
            found = FUNCTIONS[node.op][0](args[0])
    return np.asarray(found, dtype=np.float64)


def backward(node: Node, g: Array, y: Array, args: Sequence[Array], target: int) -> list[Array]:
    """∂L/∂ of what the node reads, each in its own shape."""
    match node.op:
        case "product":
            found = [np.outer(g, args[1]), args[0].T @ g]
        case "sum":
            found = [sign * g for sign in node.signs]
        case "times":
            found = [g * args[1], g * args[0]]
        case "quotient":
            found = [g / args[1], -g * y / args[1]]
        case "power":
            found = [g * node.number * args[0] ** (node.number - 1)]
        case "beside":
            found = np.split(g, np.cumsum([len(a) for a in args])[:-1])
        case "softmax":
            found = [y * (g - np.sum(g * y))]
        case "loss":
            part = np.zeros_like(args[0])
            part[target] = -g[0] / args[0][target]
            found = [part]
        case _:
            found = [g * FUNCTIONS[node.op][1](args[0], y)]
    return [
        np.asarray(part) if part.shape == a.shape else np.sum(part).reshape(a.shape)
        for part, a in zip(found, args, strict=True)
    ]
