"""Operations on vectors, what each of them gives and what it passes back.

A graph is a list of nodes, each after those that it reads; one step of a recurrence is a pass over it. Leaves are the
input, the states before the step, weights and numbers. With y = op(a, b, …) and g = ∂L/∂y, `backward` gives ∂L/∂a, ….
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recur.i18n import Message
from recur.reference.network import softmax
from recur.reference.sequence import Array, sigmoid
from recur.studio.equations.parser import BEFORE, INPUT, NOW, Equation, EquationError, ExpressionTree, parse

LEAVES = ("input", "before", "weight", "number")

Size = tuple[str, ...]
"""Of a vector: ("H",) units, ("D",) inputs, ("K",) outputs, and one after the other for vectors side by side; () for a
number."""


@dataclass(frozen=True)
class GraphNode:
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


def forward(node: GraphNode, args: Sequence[Array], target: int) -> Array:
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


def backward(node: GraphNode, g: Array, y: Array, args: Sequence[Array], target: int) -> list[Array]:
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


UNITS: Size = ("H",)
INPUTS: Size = ("D",)
NODES = 150
"""At most, of one step."""
SUM, PRODUCT, FACTOR = 1, 2, 3
"""How tightly a formula holds together."""


@dataclass
class Equations:
    """One step as a graph."""

    text: str
    nodes: list[GraphNode]
    states: dict[str, int]
    """The states and the nodes that they are after the step; the first is the output."""
    names: dict[str, int]
    """All that is defined, and its node."""
    weights: dict[str, tuple[Size, Size]]
    """Rows and columns; no columns for a vector."""

    @property
    def output(self) -> int:
        return next(iter(self.states.values()))


def read_equations(text: str) -> Equations:
    """Read equations; what cannot be read is refused with its line and column."""
    return _Reader(text).read()


def shown(name: str, time: str = "") -> str:
    """A name as it is displayed: its subscripts, and the time, behind one underscore."""
    base, *parts = name.split("_")
    parts += [time.replace("-", "−")] if time else []
    inside = ",".join(parts)
    return base if not parts else f"{base}_{inside}" if len(inside) == 1 else f"{base}_{{{inside}}}"


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.equations = parse(text)
        self.defined: dict[str, Equation] = {}
        for equation in self.equations:
            if equation.name in self.defined:
                raise equation.token.refuse(Message("{name} is defined twice", name=equation.name))
            self.defined[equation.name] = equation
        self.lines = {name: k for k, name in enumerate(self.defined)}
        self.nodes: list[GraphNode] = []
        self.tight: list[int] = []
        self.leaves: dict[tuple[str, str], int] = {}
        self.names: dict[str, int] = {}
        self.weights: dict[str, tuple[Size, Size]] = {}
        self.made: dict[tuple[object, ...], int] = {}
        self.doing: list[str] = []
        self.called: set[str] = set()

    def read(self) -> Equations:
        self.states = self._states()
        last = self.equations[-1].token
        for name in self.defined:
            self._define(name)
        if not self.states:
            raise last.refuse(Message("nothing is carried from step to step: define a state, h' = … or h_t = …"))
        if ("input", INPUT) not in self.leaves:
            raise self.equations[0].token.refuse(Message("the input x is not read; a matrix brings it in, as in U x"))
        for name in self.states:
            if self.nodes[self.names[name]].size != UNITS:
                token = self.defined[name].token
                raise token.refuse(Message("the state {name} must be a vector of H units", name=name))
        first = "h" if "h" in self.states else self.states[0]
        states = {name: self.names[name] for name in dict.fromkeys((first, *self.states))}
        return Equations(self.text, self.nodes, states, self.names, self.weights)

    # States -----------------------------------------------------------------------------------------------

    def _states(self) -> list[str]:
        if not self.equations:
            raise EquationError(
                1,
                1,
                Message("an equation begins with a name, as in h' = …; got {got}", got=Message("the end of the line")),
            )
        uses = [(leaf, k) for k, one in enumerate(self.equations) for leaf in _names(one.tree)]
        self.timed = any(one.time for one in self.equations) or any(leaf.time for leaf, _ in uses)
        found = []
        for name, one in self.defined.items():
            mine = [(leaf, k) for leaf, k in uses if leaf.name == name]
            read_before = any(leaf.time == BEFORE for leaf, _ in mine)
            early = not self.timed and any(k <= self.lines[name] for _, k in mine)
            if one.time == "'" or read_before or early:
                found.append(name)
        return found

    def _is_before(self, leaf: ExpressionTree, at: str) -> bool:
        """Whether a name means the state before the step, in the definition of `at`."""
        name = leaf.name
        if leaf.time == BEFORE:
            return True
        if leaf.time or name not in self.states:
            return False
        if self.defined[name].time == "'":
            return True
        if self.timed:
            now, before = shown(name, NOW), shown(name, BEFORE)
            raise leaf.token.refuse(
                Message("{name} is a state: write {now} or {before}", name=name, now=now, before=before)
            )
        return self.lines[at] <= self.lines[name]

    # Nodes ------------------------------------------------------------------------------------------------

    def _add(self, node: GraphNode, tight: int = FACTOR) -> int:
        made = node.op, node.args, node.number, node.signs
        if node.args and made in self.made:  # the same of the same: [h, x] of four gates is one row
            return self.made[made]
        if len(self.nodes) >= NODES:
            raise self.equations[-1].token.refuse(
                Message("too much for one step: at most {most} operations", most=NODES)
            )
        if node.args:
            self.made[made] = len(self.nodes)
        self.nodes.append(node)
        self.tight.append(tight)
        return len(self.nodes) - 1

    def _leaf(self, op: str, name: str, size: Size, symbol: str, columns: Size = ()) -> int:
        key = op, name
        if key not in self.leaves:
            self.leaves[key] = self._add(
                GraphNode(op, name=name, size=size, columns=columns, symbol=symbol, formula=symbol)
            )
        return self.leaves[key]

    def _define(self, name: str) -> int:
        if name in self.names:
            return self.names[name]
        equation = self.defined[name]
        if name in self.doing:
            before = shown(name, BEFORE)
            reason = Message(
                "{name} would need itself; the state before the step is {before}", name=name, before=before
            )
            raise equation.token.refuse(reason)
        self.doing.append(name)
        node = self._build(equation.tree, name)
        if self.nodes[node].name or self.nodes[node].op in ("input", "before", "weight", "number"):
            old = self.nodes[node]
            node = self._add(GraphNode("same", (node,), size=old.size, formula=old.symbol))
        self.nodes[node] = replace(self.nodes[node], name=name, symbol=shown(name, NOW), line=equation.token.line)
        self.tight[node] = FACTOR
        self.names[name] = node
        self.doing.pop()
        return node

    def _build(self, tree: ExpressionTree, at: str) -> int:
        if tree.op == "number":
            text = repr(tree.number).removesuffix(".0")
            return self._add(GraphNode("number", number=tree.number, size=(), symbol=text, formula=text))
        if tree.op == "name":
            return self._build_name(tree, at)
        if tree.op == "vector":
            return self._vector(tree, UNITS)
        if tree.op == "matrix":
            reason = Message(
                "{name} is a matrix, which stands before what it multiplies: {name} h; vectors have small letters",
                name=tree.name,
            )
            raise tree.token.refuse(reason)
        if tree.op == "product":
            return self._build_product(tree, at)
        args, size = self._build_parts(tree, at)
        if tree.op in FUNCTIONS:
            self._name_argument(tree, args, at)
        formula, tight = self._formula(tree, args)
        line = tree.token.line
        node = GraphNode(
            tree.op,
            tuple(args),
            size=size,
            number=tree.number,
            signs=tree.signs,
            symbol=formula,
            formula=formula,
            line=line,
        )
        return self._add(node, tight)

    def _build_name(self, tree: ExpressionTree, at: str) -> int:
        if tree.name == INPUT:
            if tree.time == BEFORE:
                raise tree.token.refuse(Message("a step reads x_t; what came before is in the states"))
            return self._leaf("input", INPUT, INPUTS, shown(INPUT, NOW))
        if self._is_before(tree, at):
            if tree.name not in self.states:
                raise tree.token.refuse(Message("no equation defines {name}", name=tree.name))
            return self._leaf("before", tree.name, UNITS, shown(tree.name, BEFORE))
        if tree.name in self.doing:
            before = shown(tree.name, BEFORE)
            reason = Message(
                "{name} would need itself; the state before the step is {before}", name=tree.name, before=before
            )
            raise tree.token.refuse(reason)
        return self._define(tree.name)

    def _vector(self, tree: ExpressionTree, size: Size) -> int:
        if self.weights.setdefault(tree.name, (size, ())) != (size, ()):
            raise tree.token.refuse(Message("the weight {name} is needed in two shapes", name=tree.name))
        return self._leaf("weight", tree.name, size, shown(tree.name))

    def _build_product(self, tree: ExpressionTree, at: str) -> int:
        inside = self._build(tree.parts[0], at)
        columns = self.nodes[inside].size
        if not columns:
            raise tree.token.refuse(Message("{name} multiplies a vector, not a number", name=tree.name))
        if self.weights.setdefault(tree.name, (UNITS, columns)) != (UNITS, columns):
            raise tree.token.refuse(Message("the weight {name} is needed in two shapes", name=tree.name))
        matrix = self._leaf("weight", tree.name, UNITS, shown(tree.name), columns)
        formula = f"{shown(tree.name)} {self._inside(inside, FACTOR)}"
        node = GraphNode("product", (matrix, inside), symbol=formula, formula=formula, line=tree.token.line)
        return self._add(node, PRODUCT)

    def _build_parts(self, tree: ExpressionTree, at: str) -> tuple[list[int], Size]:
        """The parts of an operation, vectors of weights as long as what they meet, and the result's size."""
        built = [None if part.op == "vector" else self._build(part, at) for part in tree.parts]
        sizes = {self.nodes[node].size for node in built if node is not None} - {()}
        if tree.op == "beside":
            args = [
                self._vector(part, UNITS) if node is None else node
                for node, part in zip(built, tree.parts, strict=True)
            ]
            if () in (self.nodes[node].size for node in args):
                raise tree.token.refuse(Message("vectors stand side by side in [ ], not numbers"))
            return args, tuple(part for node in args for part in self.nodes[node].size)
        if len(sizes) > 1:
            raise tree.token.refuse(Message("vectors of two lengths meet; a matrix makes H of the input's: U x"))
        vector = any(node is None for node in built)
        size = sizes.pop() if sizes else UNITS if vector else ()
        args = [
            self._vector(part, size) if node is None else node for node, part in zip(built, tree.parts, strict=True)
        ]
        return args, size

    # Formulas ---------------------------------------------------------------------------------------------

    def _inside(self, node: int, bound: int) -> str:
        text = self.nodes[node].symbol
        return text if self.tight[node] >= bound else f"({text})"

    def _formula(self, tree: ExpressionTree, args: list[int]) -> tuple[str, int]:
        if tree.op == "sum":
            parts = [
                self._inside(node, SUM if sign > 0 else PRODUCT) for sign, node in zip(tree.signs, args, strict=True)
            ]
            text = ("−" if tree.signs[0] < 0 else "") + parts[0]
            return text + "".join(
                f" {'+' if s > 0 else '−'} {p}" for s, p in zip(tree.signs[1:], parts[1:], strict=True)
            ), SUM
        if tree.op in ("times", "quotient"):
            left, right = self._inside(args[0], PRODUCT), self._inside(args[1], FACTOR)
            number = self.nodes[args[0]].op == "number"
            sign = "/" if tree.op == "quotient" else "" if number else "⊙"
            return " ".join(filter(None, (left, sign, right))), PRODUCT
        if tree.op == "power":
            power = repr(tree.number).removesuffix(".0").replace("-", "−")
            power = {"2": "²", "3": "³"}.get(power, f"^{power}")
            return self._inside(args[0], FACTOR) + power, FACTOR
        inside = ", ".join(self.nodes[node].symbol for node in args)
        if tree.op == "beside":
            return f"[{inside}]", FACTOR
        return f"|{inside}|" if tree.op == "abs" else f"{tree.op}({inside})", FACTOR

    def _name_argument(self, tree: ExpressionTree, args: list[int], at: str) -> None:
        """Call the sum that a function is taken of a, as books do: z = σ(a_z)."""
        inside = self.nodes[args[0]]
        if inside.op != "sum" or inside.symbol != inside.formula:
            return
        wanted = [f"a_{at}"] if self.defined[at].tree is tree else ["a", *(f"a_{k}" for k in range(2, 10))]
        taken = {*self.defined, *self.weights, *self.called}
        name = next((name for name in wanted if name not in taken), "")
        if name:
            self.called.add(name)
            self.nodes[args[0]] = replace(inside, symbol=shown(name, NOW))
            self.tight[args[0]] = FACTOR


def _names(tree: ExpressionTree) -> list[ExpressionTree]:
    return [tree] if tree.op == "name" else [leaf for part in tree.parts for leaf in _names(part)]
