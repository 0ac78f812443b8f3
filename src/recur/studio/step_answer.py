"""The answer of Step: rows and weights with their equations and lines of code, and every number that is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recur.studio.equations.graph import Node, Size
from recur.studio.equations.network import Network, Pass
from recur.studio.equations.python_cell import PythonCell
from recur.studio.equations.slopes import slopes
from recur.studio.equations.textbook import TEXTBOOK, backward_line, forward_line
from recur.utils.types import JsonObject

Array = NDArray[np.float64]
KINDS = {("H",): "units", ("D",): "symbols", ("K",): "symbols", (): "one"}
"""What the places of a vector stand for."""


@dataclass
class Shown:
    """Which of a network's units and symbols are shown: of eight units all."""

    units: list[int]
    symbols: list[int]
    labels: list[str]
    """Of the symbols."""
    sizes: Mapping[str, int]

    def index(self, size: Size) -> NDArray[np.int64]:
        """The places of a vector that are shown."""
        if not size:
            return np.zeros(1, dtype=np.int64)
        found, begin = [], 0
        for part in size:
            found.append(begin + np.array(self.units if part == "H" else self.symbols, dtype=np.int64))
            begin += self.sizes[part]
        return np.concatenate(found)

    def weight(self, shape: tuple[Size, Size]) -> NDArray[np.int64]:
        """The places of a weight that are shown, row by row."""
        rows, columns = shape
        if not columns:
            return self.index(rows)
        width = sum(self.sizes[part] for part in columns)
        return (self.index(rows)[:, None] * width + self.index(columns)).reshape(-1)

    def names(self, size: Size) -> list[str]:
        """Of the places of a vector."""
        found: list[str] = []
        for part in size:
            found += [str(k) for k in self.units] if part == "H" else self.labels
        return found or [""]

    def numbers(self, vector: Array, size: Size) -> list[float | str]:
        return [finite(value) for value in np.atleast_1d(vector)[self.index(size)].tolist()]

    def matrix(self, value: Array, shape: tuple[Size, Size]) -> list[float | str]:
        return [finite(number) for number in value.reshape(-1)[self.weight(shape)].tolist()]


def finite(value: float) -> float | str:
    """A number as JSON has it, or as a person writes it."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"


def answer(
    cell: str,
    network: Network,
    weights: Mapping[str, Array],
    found: Pass,
    ids: list[int],
    shown: Shown,
    code: PythonCell | None,
) -> JsonObject:
    nodes, states = network.nodes, network.equations.states
    backward = slopes(nodes, list(states.values()))
    order = _order(network)
    steps = range(len(found.values))
    label = dict(zip(shown.symbols, shown.labels, strict=True))
    return {
        "cell": cell,
        "symbols": shown.labels,
        "inputs": [label[k] for k in ids[:-1]],
        "targets": [label[k] for k in ids[1:]],
        "units": shown.units,
        "loss": finite(found.loss),
        "states": [{"name": name, "node": k, "before": _before(nodes, name)} for name, k in states.items()],
        "rows": [_row(cell, network, k, backward[k], shown, code) for k in order],
        "weights": [_weight(cell, network, name, backward, shown) for name in network.shapes],
        "values": [[shown.numbers(found.values[t][k], nodes[k].size) for k in order] for t in steps],
        "gradients": [[shown.numbers(found.gradients[t][k], nodes[k].size) for k in order] for t in steps],
        "others": [[_others(nodes[k], found.values[t][k], found.values[t], shown) for k in order] for t in steps],
        "within": [_by_state(found.within[t], shown) for t in steps],
        "from_next": [_by_state(found.from_next[t], shown) for t in steps],
        "to_start": _by_state(found.start, shown),
        "numbers": {name: shown.matrix(weights[name], shape) for name, shape in network.shapes.items()},
        "terms": [
            {name: shown.matrix(found.terms[t][name], shape) for name, shape in network.shapes.items()} for t in steps
        ],
        "sums": [
            {name: shown.matrix(found.total(name, t), shape) for name, shape in network.shapes.items()} for t in steps
        ],
    }


def _order(network: Network) -> list[int]:
    """The nodes that are rows: the input and the states before the step, then all that is computed, in its order."""
    nodes = network.nodes
    leaves = [k for op in ("input", "before") for k, node in enumerate(nodes) if node.op == op]
    return leaves + [k for k, node in enumerate(nodes) if node.op not in ("input", "before", "weight", "number")]


def _before(nodes: list[Node], state: str) -> int | None:
    return next((k for k, node in enumerate(nodes) if node.op == "before" and node.name == state), None)


def _by_state(parts: Mapping[str, Array], shown: Shown) -> JsonObject:
    return {name: shown.numbers(value, ("H",)) for name, value in parts.items()}


def _row(cell: str, network: Network, k: int, slope: str, shown: Shown, code: PythonCell | None) -> JsonObject:
    node, own = network.nodes[k], k < len(network.equations.nodes)
    if cell in TEXTBOOK or not own:
        book = cell if cell in TEXTBOOK else "elman"  # the output layer is the same for all
        forward, backward = forward_line(book, node.symbol), backward_line(book, node.symbol)
    else:
        forward, backward = None, None
    typed = None
    if forward is None and own and code is not None and cell not in TEXTBOOK:
        typed = next(
            (line for name, line in code.lines.items() if _reads(network, network.equations.names[name], k)), None
        )
    return {
        "node": k,
        "op": node.op,
        "name": node.name,
        "symbol": node.symbol,
        "formula": "" if node.formula == node.symbol and node.op in ("input", "before") else node.formula,
        "slope": slope,
        "kind": KINDS.get(node.size, "parts"),
        "labels": shown.names(node.size),
        "part": "cell" if own else "output",
        "reads": [_read(network.nodes, arg) for arg in node.args],
        "signs": list(node.signs),
        "code": forward._asdict() if forward else {"file": "typed.py", "line": None, "text": typed} if typed else None,
        "back": backward._asdict() if backward else None,
    }


def _read(nodes: list[Node], k: int) -> JsonObject:
    """What a row reads: a weight, a number, or another row."""
    node = nodes[k]
    if node.op == "number":
        return {"number": node.number}
    return {"weight": node.name} if node.op == "weight" else {"node": k}


def _reads(network: Network, top: int, k: int) -> bool:
    """Whether a node is computed in the equation whose result is `top`."""
    if top == k:
        return True
    inside = [arg for arg in network.nodes[top].args if not network.nodes[arg].name]
    return any(_reads(network, arg, k) for arg in inside)


def _weight(cell: str, network: Network, name: str, slopes_of: list[str], shown: Shown) -> JsonObject:
    rows, columns = network.shapes[name]
    k = next(k for k, node in enumerate(network.nodes) if node.op == "weight" and node.name == name)
    output = name in network.letters
    line = (
        backward_line(cell if cell in TEXTBOOK else "elman", network.nodes[k].symbol)
        if cell in TEXTBOOK or output
        else None
    )
    return {
        "name": name,
        "symbol": network.nodes[k].symbol,
        "rows": shown.names(rows),
        "columns": shown.names(columns) if columns else [],
        "slope": slopes_of[k],
        "back": line._asdict() if line else None,
    }


def _others(node: Node, value: Array, values: list[Array], shown: Shown) -> list[float | str] | None:
    """Of a product, what the units add that are not shown; of ŷ, how likely the symbols are that are not."""
    if node.op == "softmax" and len(shown.symbols) < len(value):
        return [finite(float(np.delete(value, shown.symbols).sum()))]
    if node.op != "product":
        return None
    matrix, vector = (values[arg] for arg in node.args)
    hidden = np.setdiff1d(np.arange(len(vector)), shown.units)
    if len(vector) != shown.sizes["H"] or not len(hidden) or len(shown.units) == len(vector):
        return None
    return shown.numbers(matrix[:, hidden] @ vector[hidden], node.size)
