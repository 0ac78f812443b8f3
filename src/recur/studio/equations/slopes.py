"""The gradient of every row as a book would write it: ∂a_t = (1 − h_t²) ⊙ ∂h_t, where ∂q stands for ∂L/∂q.

What is only added to something has that one's gradient as it is, and its name: ∂(W h) of a = U x + W h + b is ∂a.
"""

from __future__ import annotations

from collections.abc import Sequence

from recur.studio.equations.graph import Node

SLOPES = {
    "σ": "{y} ⊙ (1 − {y}) ⊙ {g}", "tanh": "(1 − {y}²) ⊙ {g}", "ReLU": "[{y} > 0] ⊙ {g}", "exp": "{y} ⊙ {g}",
    "log": "{g} / {a}", "√": "{g} / (2 {y})", "softplus": "σ({a}) ⊙ {g}", "sin": "cos({a}) ⊙ {g}",
    "cos": "−sin({a}) ⊙ {g}", "abs": "sign({a}) ⊙ {g}", "same": "{g}", "loss": "−1 / ŷ_t[y_t]",
    "softmax": "ŷ_t − 1[y_t]",
}  # fmt: skip
"""Of y = φ(a) with g = ∂y. That of the softmax has the loss behind it in it."""


def slopes(nodes: Sequence[Node], states: Sequence[int]) -> list[str]:
    """For each node the formula of its gradient, in the gradients of those that read it."""
    readers: list[list[tuple[int, int]]] = [[] for _ in nodes]
    for k, node in enumerate(nodes):
        for place, arg in enumerate(node.args):
            readers[arg].append((k, place))
    names = [""] * len(nodes)
    for k in reversed(range(len(nodes))):
        names[k] = _name(nodes, readers, names, states, k)
    found = []
    for k in range(len(nodes)):
        parts = [_part(nodes, names, reader, place) for reader, place in readers[k]]
        text = " + ".join(parts).replace("+ −", "− ")
        found.append(text or ("1" if nodes[k].op == "loss" else "0"))
    return found


def _inside(node: Node) -> str:
    """A node's symbol as a factor."""
    whole = node.symbol != node.formula or node.op not in ("sum", "times", "quotient", "product", "power")
    return node.symbol if whole else f"({node.symbol})"


def _name(
    nodes: Sequence[Node], readers: list[list[tuple[int, int]]], names: list[str], states: Sequence[int], k: int
) -> str:
    if len(readers[k]) == 1 and k not in states and not nodes[k].name:
        reader, place = readers[k][0]
        if nodes[reader].op == "sum" and nodes[reader].signs[place] > 0 and nodes[k].size == nodes[reader].size:
            return names[reader]
    symbol = nodes[k].symbol
    return f"∂{symbol}" if " " not in symbol and "(" not in symbol else f"∂({symbol})"


def _part(nodes: Sequence[Node], names: list[str], reader: int, place: int) -> str:
    node, g = nodes[reader], names[reader]
    inside = [_inside(nodes[arg]) for arg in node.args]
    match node.op:
        case "product":
            return f"{g} {inside[1]}ᵀ" if place == 0 else f"{inside[0]}ᵀ {g}"
        case "sum":
            return g if node.signs[place] > 0 else f"−{g}"
        case "times":
            other = nodes[node.args[1 - place]]
            return f"{inside[1 - place]} {g}" if not other.size else f"{inside[1 - place]} ⊙ {g}"
        case "quotient":
            return f"{g} / {inside[1]}" if place == 0 else f"−{g} ⊙ {_inside(node)} / {inside[1]}"
        case "power":
            return f"{node.number:g} {inside[0]}^{node.number - 1:g} ⊙ {g}"
        case "beside":
            return f"{g}[{inside[place]}]"
        case _:
            return SLOPES[node.op].format(y=_inside(node), a=nodes[node.args[0]].symbol, g=g)
