"""Readable equations of a step and of its derivative, in the names that the cell uses.

    x_i, h_i      input and recurrent projection of gate i        c, c'   a state before and after the step
    g_c           incoming gradient of c'
    ∂f            ∂L/∂f, where f is a local variable of the step, a projection, a state or a weight of the cell

An unnamed value that is used more than once is called u1, u2, ….
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from recur.cells.cell import Cell
from recur.compiler.expressions import LEAVES, Expressions, differentiate
from recur.compiler.tracing import SourceNames, check_pointwise, trace_operations

SUM, PRODUCT, FACTOR = 1, 2, 3
"""Operator precedence: a formula of lower precedence than its context is put in parentheses."""

FUNCTIONS = {
    "sigmoid": "σ", "relu": "ReLU", "sqrt": "√", "minimum": "min", "maximum": "max",
    "select": "where",
}  # fmt: skip
"""Printed names of operations, where they differ."""

WHOLE = {"log_sigmoid": "log σ", "softplus": "softplus", "elu": "elu", "selu": "selu", "gelu": "gelu", "silu": "silu",
         "softsign": "softsign", "leaky_relu": "leaky_relu", "relu6": "relu6", "hardtanh": "hardtanh", "mish": "mish",
         "hardsigmoid": "hardsigmoid"}  # fmt: skip
"""PyTorch functions that are printed as one function, although a program computes them in several operations."""

INFIX = {"less": "<", "less_equal": "≤", "equal": "="}


def equations_of(cell: Cell) -> tuple[list[str], list[str]]:
    """Return the equations of a pointwise cell and of its derivative, one line each."""
    check_pointwise(cell)
    source = SourceNames()
    terms, states = trace_operations(cell, source)
    leaves = _leaf_names(cell)
    arriving = [terms.leaf("g", k) for k in range(len(states))]
    found = differentiate(terms, states, arriving)

    named: dict[int, str] = {}
    for name, value in zip(cell.states, states, strict=True):
        if terms[value].op not in LEAVES:
            named.setdefault(value, f"{name}'")
    taken = {*leaves.values(), *named.values()}
    for name, value in source.names.items():
        if terms[value].op not in LEAVES and value not in named and name not in taken:
            named[value] = name
            taken.add(name)
    results = [(f"{name}'", value) for name, value in zip(cell.states, states, strict=True)]
    forward = _EquationWriter(terms, leaves, source.functions, named)
    equations = forward.lines(results)

    # The gradient of a named value v is named ∂v. A gradient that equals another one has one name only.
    slopes = dict(forward.named)
    for value, name in named.items():
        slope = found.values.get(value)
        if slope is not None and terms[slope].op not in LEAVES:
            slopes.setdefault(slope, f"∂{name}")
    results = [(f"∂{leaves[leaf]}", found.leaves[leaf]) for leaf in leaves if leaf in found.leaves]
    for name, value in results:
        if terms[value].op not in LEAVES and name != f"∂{cell.states[0]}":  # the last line adds to ∂h: not its value
            slopes.setdefault(value, name)
    derivative = _EquationWriter(terms, leaves, source.functions, slopes, known=set(forward.named)).lines(results)
    if cell.recurrent_gates:
        shares = ", ".join(f"∂h_{gate}" for gate in cell.recurrent_gates)
        derivative.append(f"∂{cell.states[0]} += Wᵀ ({shares})")
    return equations, derivative


def _leaf_names(cell: Cell) -> dict[tuple[str, int], str]:
    of_x = [*(f"x_{gate}" for gate in cell.gates), *cell.step_inputs]
    names = {("x", k): name for k, name in enumerate(of_x)}
    names |= {("h", k): f"h_{gate}" for k, gate in enumerate(cell.recurrent_gates)}
    names |= {("s", k): state for k, state in enumerate(cell.states)}
    names |= {("g", k): f"g_{state}" for k, state in enumerate(cell.states)}
    return names | {("w", k): name for k, name in enumerate(cell.extras)}


class _EquationWriter:
    """Writer of lines `name = formula`, in the order of use."""

    def __init__(
        self,
        terms: Expressions,
        leaves: Mapping[tuple[str, int], str],
        functions: Mapping[int, tuple[str, tuple[int, ...]]],
        named: Mapping[int, str],
        known: Iterable[int] = (),
    ) -> None:
        self.terms, self.leaves = terms, leaves
        self.functions = {v: (WHOLE[name], inside) for v, (name, inside) in functions.items() if name in WHOLE}
        self.named = dict(named)
        self.known = set(known)
        """Named values whose equations are in another listing."""

    def lines(self, results: Sequence[tuple[str, int]]) -> list[str]:
        values = [value for _, value in results]
        self._name_shared(values)
        alike: dict[int, list[str]] = {}
        for name, value in results:
            alike.setdefault(value, []).append(name)
        lines = []
        for value in sorted(self._needed(values)):
            names = alike.pop(value) if self.named[value] in alike.get(value, ()) else [self.named[value]]
            lines.append(f"{' = '.join(names)} = {self._formula(value, whole=True)[0]}")
        return lines + [f"{' = '.join(names)} = {self._formula(value)[0]}" for value, names in alike.items()]

    def _parts(self, value: int) -> tuple[int, ...]:
        op, args, _ = self.terms[value]
        return self.functions[value][1] if value in self.functions else args[:1] if op == "custom" else args

    def _name_shared(self, values: Sequence[int]) -> None:
        """Give a name to every value that is used more than once."""
        uses: dict[int, int] = {}
        for value in self._reached(values):
            for k, part in enumerate(self._parts(value)):
                twice = self.terms[value].op == "d_sigmoid" and k == 1
                uses[part] = uses.get(part, 0) + 1 + twice
        results = set(values)
        shared = [v for v, n in uses.items() if n + (v in results) > 1 and self.terms[v].args and v not in self.named]
        begin = 1 + sum(name[0] == "u" and name[1:].isdigit() for name in self.named.values())
        for k, value in enumerate(sorted(v for v in shared if self.terms[v].op != "neg"), begin):
            self.named[value] = f"u{k}"

    def _needed(self, values: Sequence[int]) -> set[int]:
        """Return the named values that `values` depend on, `values` included, without the known ones."""
        return {value for value in self._reached(values) if value in self.named}

    def _reached(self, values: Sequence[int]) -> Iterator[int]:
        """Yield `values` and all that they depend on, once each, without the known ones."""
        todo, seen = list(values), set(self.known)
        while todo:
            value = todo.pop()
            if value not in seen:
                seen.add(value)
                todo += self._parts(value)
                yield value

    def _formula(self, value: int, whole: bool = False) -> tuple[str, int]:
        """Return the text of a value and its precedence; `whole` returns the formula of a named value."""
        if value in self.named and not whole:
            return self.named[value], FACTOR
        op, args, leaf = self.terms[value]
        if value in self.functions:
            name, inside = self.functions[value]
            return f"{name}({', '.join(self._formula(part)[0] for part in inside)})", FACTOR
        if op == "number":
            return repr(leaf).removesuffix(".0").replace("-", "−"), FACTOR if leaf >= 0 else SUM
        if op in LEAVES:
            return self.leaves[op, int(leaf)], FACTOR
        if op == "custom":  # its derivative is in the other listing
            return self._formula(args[0])
        if op in ("add", "sub"):
            a, b = self._at_least(args[0], SUM), self._at_least(args[1], SUM if op == "add" else PRODUCT)
            return f"{a} {'+' if op == 'add' else '−'} {b}", SUM
        if op == "mul":
            a, b = (self._at_least(arg, PRODUCT) for arg in args)
            if self.terms.number_of(args[1]) is not None:
                a, b = b, a
            number = any(self.terms.number_of(arg) is not None for arg in args)
            return f"{a} {b}" if number else f"{a} ⊙ {b}", PRODUCT
        if op == "div":
            return f"{self._at_least(args[0], PRODUCT)} / {self._at_least(args[1], FACTOR)}", PRODUCT
        if op == "neg":
            return f"−{self._at_least(args[0], PRODUCT)}", SUM
        if op == "d_sigmoid":
            g, y = self._at_least(args[0], PRODUCT), self._at_least(args[1], FACTOR)
            return f"{g} ⊙ {y} ⊙ (1 − {y})", PRODUCT
        if op == "d_tanh":
            g, y = self._at_least(args[0], PRODUCT), self._at_least(args[1], FACTOR)
            return f"{g} ⊙ (1 − {y}²)", PRODUCT
        if op in INFIX:
            return f"{self._formula(args[0])[0]} {INFIX[op]} {self._formula(args[1])[0]}", 0
        listed = ", ".join(self._formula(arg)[0] for arg in args)
        return f"|{listed}|" if op == "abs" else f"{FUNCTIONS.get(op, op)}({listed})", FACTOR

    def _at_least(self, value: int, bound: int) -> str:
        text, tightness = self._formula(value)
        return text if tightness >= bound else f"({text})"
