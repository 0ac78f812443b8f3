"""Typed equations as a custom cell in a file: `recur train book.txt --cell typed.py:Typed`.

A cell of recur sees the input and the first state through products that are made for it (x.g = U_g x + b_g and
h.g = W_g h + b_hg of gate g), so that its step is pointwise and fast. Matrices of these two become gates; any other one
is a weight of the cell's own, and the step runs on the loop.
"""

from __future__ import annotations

import keyword
import unicodedata
from dataclasses import dataclass, field

import numpy as np

from recur.errors import CellError
from recur.i18n import Message
from recur.studio.equations.graph import FACTOR, LEAVES, PRODUCT, SUM, UNITS, Equations, GraphNode, forward

FUNCTIONS = {"σ": "sigmoid", "ReLU": "relu", "√": "sqrt"}
"""torch's names, where they are others."""
MARKS = {"\u0303": "_tilde", "\u0302": "_hat", "\u0304": "_bar"}
TORCH = ("abs", "cos", "exp", "log", "relu", "sigmoid", "sin", "sqrt", "tanh")
RESERVED = {"self", *TORCH, "linear", "softplus", "x", "h", "s", "w"}


@dataclass
class PythonGate:
    """A block of U or W."""

    name: str
    matrix: str
    first: bool
    """Whether it multiplies the first state, and not the input."""
    part: int = -1
    """Which of several vectors side by side it multiplies; −1 where there is one."""
    bias: str = ""
    """The vector that is added to it, if one is and nowhere else."""


@dataclass
class PythonCell:
    source: str
    gates: list[PythonGate]
    extras: dict[str, str]
    """Weights of the cell's own: their names, by ours (and the part, for one of several side by side)."""
    lines: dict[str, str] = field(default_factory=dict)
    """The line of source that computes what an equation defines, by its name."""


def python_cell(equations: Equations, name: str = "Typed") -> PythonCell:
    """The text of a file with a class of this name; refused where a step of recur cannot see what it needs."""
    return _Printer(equations, name).cell()


def identifier(name: str) -> str:
    """A name as Python can have it: h̃ is h_tilde."""
    letters = "".join(
        MARKS.get(sign, "" if unicodedata.combining(sign) else sign) for sign in unicodedata.normalize("NFD", name)
    )
    return letters if letters.isidentifier() and not keyword.iskeyword(letters) else f"v_{letters}"


class _Printer:
    def __init__(self, equations: Equations, name: str) -> None:
        self.equations, self.name, self.nodes = equations, name, equations.nodes
        self.first = next(iter(equations.states))
        self.readers: list[list[int]] = [[] for _ in self.nodes]
        for k, node in enumerate(self.nodes):
            for arg in node.args:
                self.readers[arg].append(k)
        for k in equations.states.values():
            self.readers[k].append(-1)
        self.gates: list[PythonGate] = []
        self.extras: dict[str, str] = {}
        self.matrices: set[str] = set()
        self.printed: dict[int, str] = {}
        self.folded: set[int] = set()
        self.variables: dict[str, str] = {}

    def cell(self) -> PythonCell:
        for name in self.equations.names:
            prefix = "new_" if name in self.equations.states else ""
            self.variables[name] = self._unused(identifier(prefix + name))
        for k, node in enumerate(self.nodes):
            if node.op == "product":
                self._plan(k, node)
        self._fold_biases()
        body, lines = [], {}
        for name in sorted(self.equations.names, key=self.equations.names.__getitem__):
            k = self.equations.names[name]
            line = f"{self.variables[name]} = {self._text(k, whole=True)}"
            body.append(line)
            lines[name] = line
        returned = ", ".join(self.variables[name] for name in self.equations.states)
        body.append(f"return ({returned},)" if len(self.equations.states) == 1 else f"return {returned}")
        return PythonCell(self._file(body), self.gates, self.extras, lines)

    def _unused(self, name: str) -> str:
        while name in RESERVED or name in self.variables.values():
            name += "_"
        return name

    # Products ---------------------------------------------------------------------------------------------

    def _plan(self, k: int, node: GraphNode) -> None:
        """A product as a gate, as several of them, or with a matrix of the cell's own."""
        matrix, inside = node.args
        name = self.nodes[matrix].name
        alone = len(self.readers[matrix]) == 1
        whole = self.nodes[inside]
        parts = list(whole.args) if whole.op == "beside" else [inside]
        texts = []
        for place, part in enumerate(parts):
            at = place if len(parts) > 1 else -1
            leaf = self.nodes[part]
            if leaf.op == "input":
                texts.append(self._gate(k, name, first=False, part=at))
            elif leaf.op == "before" and leaf.name == self.first and alone:
                texts.append(self._gate(k, name, first=True, part=at))
            elif leaf.size == UNITS:
                own = identifier(name if at < 0 else f"{name}_{place + 1}")
                self.extras[name if at < 0 else f"{name}/{place}"] = own
                self.matrices.add(own)
                texts.append(f"linear({{{part}}}, w.{own})")  # filled in once all are planned
            else:
                raise CellError(
                    Message("a cell of recur sees x through matrices only; {formula} is none", formula=leaf.formula)
                )
        self.printed[k] = " + ".join(sorted(texts, key=lambda text: "xhl".index(text[0])))

    def _gate(self, k: int, matrix: str, first: bool, part: int) -> str:
        base, _, subscript = matrix.partition("_")
        wanted = subscript or base[1:] or self._defined_by(k)
        name, taken = identifier(wanted), {gate.name for gate in self.gates if gate.first == first}
        while name in taken or name[0] == "_":
            name = f"{name.lstrip('_')}2"
        self.gates.append(PythonGate(name, matrix, first, part))
        return f"{'h' if first else 'x'}.{name}"

    def _defined_by(self, k: int) -> str:
        """The name that the first equation gives to what a node is used for."""
        while k >= 0 and not self.nodes[k].name:
            k = min(self.readers[k])
        return self.nodes[k].name

    def _fold_biases(self) -> None:
        """A vector that is added to a gate's product, and used nowhere else, is that gate's bias."""
        for node in self.nodes:
            if node.op != "sum":
                continue
            plain = [arg for arg, sign in zip(node.args, node.signs, strict=True) if sign > 0]
            free = [
                gate
                for arg in plain
                if self.nodes[arg].op == "product" and len(self.readers[arg]) == 1
                for gate in sorted(self.gates, key=lambda gate: gate.first)
                if gate.matrix == self.nodes[self.nodes[arg].args[0]].name and not gate.bias
            ]
            free.sort(key=lambda gate: gate.first)
            for arg in plain:
                leaf = self.nodes[arg]
                if free and leaf.op == "weight" and not leaf.columns and len(self.readers[arg]) == 1:
                    free.pop(0).bias = leaf.name
                    self.folded.add(arg)

    # Text -------------------------------------------------------------------------------------------------

    def _text(self, k: int, whole: bool = False) -> str:
        node = self.nodes[k]
        if not node.size:
            return repr(float(self._number(k))).removesuffix(".0")
        if node.name and node.op not in LEAVES and not whole:
            return self.variables[node.name]
        if k in self.printed:
            return self._filled(self.printed[k])
        match node.op:
            case "before":
                return f"s.{identifier(node.name)}"
            case "weight":
                self.extras.setdefault(node.name, identifier(node.name))
                return f"w.{self.extras[node.name]}"
            case "input" | "beside":
                raise CellError(
                    Message("a cell of recur sees x through matrices only; {formula} is none", formula=node.formula)
                )
            case "sum":
                text = ""
                for sign, arg in zip(node.signs, node.args, strict=True):
                    if arg not in self.folded:
                        joint = (" + " if text else "") if sign > 0 else (" - " if text else "-")
                        text += joint + self._inside(arg, SUM if sign > 0 else PRODUCT)
                return text
            case "times":
                return f"{self._inside(node.args[0], PRODUCT)} * {self._inside(node.args[1], FACTOR)}"
            case "quotient":
                return f"{self._inside(node.args[0], PRODUCT)} / {self._inside(node.args[1], FACTOR)}"
            case "power":
                return f"{self._inside(node.args[0], FACTOR)} ** {node.number!r}"
            case "same":
                return self._text(node.args[0])
        return f"{FUNCTIONS.get(node.op, node.op)}({self._text(node.args[0])})"

    def _inside(self, k: int, bound: int) -> str:
        text = self._text(k)
        return text if _tightness(text) >= bound else f"({text})"

    def _filled(self, text: str) -> str:
        before, brace, rest = text.partition("{")
        if not brace:
            return text
        number, _, behind = rest.partition("}")
        return before + self._text(int(number)) + self._filled(behind)

    def _number(self, k: int) -> float:
        node = self.nodes[k]
        if node.op == "number":
            return node.number
        return float(forward(node, [np.array(self._number(arg)) for arg in node.args], 0))

    def _file(self, body: list[str]) -> str:
        equations = [f"{node.symbol} = {node.formula}" for node in self.nodes if node.symbol != node.formula]
        text = "\n".join(body)
        functions = [name for name in TORCH if f"{name}(" in text]
        nn = [name for name in ("linear", "softplus") if f"{name}(" in text]
        imports = [f"from torch import {', '.join(functions)}"] if functions else []
        imports += [f"from torch.nn.functional import {', '.join(nn)}"] if nn else []
        gates, state_gates = ([gate.name for gate in self.gates if gate.first == first] for first in (False, True))
        inside = [f"gates = {_tuple(gates)}"]
        if state_gates != gates:
            inside.append(f"state_gates = {_tuple(state_gates)}")
        states = [identifier(name) for name in self.equations.states]
        if states != ["h"]:
            inside.append(f"states = {_tuple(states)}")
        if self.extras:
            shapes = [(own, _tuple(["H"] * (1 + (own in self.matrices)))) for own in self.extras.values()]
            inside.append("extras = {" + ", ".join(f'"{own}": {shape}' for own, shape in shapes) + "}")
        if self.matrices:
            inside += ["pointwise = False", "own_products = True"]
        arguments = "self, x, h, s, w" if self.extras else "self, x, h, s"
        lines = [
            *imports,
            *([""] if imports else []),
            "from recur import Cell",
            "",
            "",
            f"class {self.name}(Cell):",
            '    """' + "\n    ".join(equations),
            "",
            "    x.g is U x_t + b of gate g, and h.g is W h_{t−1} + b_h: as in torch.nn, both products have a bias.",
            '    """',
            "",
            *(f"    {line}" for line in inside),
            "",
            f"    def step({arguments}):",
            *(f"        {line}" for line in body),
        ]
        return "\n".join(lines) + "\n"


def _tuple(names: list[str]) -> str:
    inside = ", ".join(f'"{name}"' for name in names)
    return f"({inside},)" if len(names) == 1 else f"({inside})"


def _tightness(text: str) -> int:
    """Return the precedence of a formula's outermost operator."""
    depth, outside = 0, ""
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        outside += sign if depth == 0 else ""
    if " + " in outside or " - " in outside or outside.startswith("-"):
        return SUM
    return PRODUCT if " * " in outside or " / " in outside or " ** " in outside else FACTOR
