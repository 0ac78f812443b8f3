"""A cell's step, read once, as expressions.

The step is traced by torch.fx. What is pointwise, is written down (see formulas.py); what is not, or looks at the
numbers to decide what to do, is refused by name. What was read is then compared with the step itself on other numbers,
values and gradients: what a trace does not show, such as a derivative of the step's own, shows there.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from recur.cells.cell import Cell, Tensors
from recur.cells.contract import check_step
from recur.errors import CellError, RecurError
from recur.program.affine import Affine, affine_stages
from recur.program.derivative import differentiate
from recur.program.expressions import Expressions
from recur.program.formulas import FORMULAS
from recur.program.ranges import range_of


class NotPointwiseError(CellError):
    """A step that is no straight line of pointwise operations: what stands in the way."""


@dataclass
class Step:
    """One step as expressions."""

    terms: Expressions
    states: list[int]
    """The next states."""
    weights: Expressions
    prepared: list[int]
    """What the step makes of the cell's own weights alone: vectors over units, computed once a scan, in PyTorch.
    They are the leaves `w` of `terms`; a weight that is used as it is stands here as it is."""
    affine: Affine | str = ""
    """The step as affine maps of its states, or why it is none."""


def read_step(cell: Cell) -> Step:
    if not cell.pointwise:
        raise NotPointwiseError(f"{type(cell).__name__} has pointwise = False")
    if type(cell).multiplied is not Cell.multiplied:
        raise NotPointwiseError(f"{type(cell).__name__} multiplies something else than its first state")
    roles = {role: cell.tuple_of(role)._fields for role in "xhsw"}
    terms, states = _trace(cell, roles)
    numbers = torch.Generator().manual_seed(0)
    for low, high in ((0.1, 2.0), (-6.0, 6.0)):  # where every function is defined, and where the odd ones are not
        leaves: dict[tuple[str, int], Tensor] = {}
        for role, names in roles.items():
            for k in range(len(names)):
                shape = (3,) if role == "w" else (2, 3)
                leaf = torch.empty(shape, dtype=torch.float64).uniform_(low, high, generator=numbers)
                leaves[role, k] = leaf
        _compare(cell, copy.deepcopy(terms), states, leaves, numbers)
    step = _prepare(terms, states)
    own = [range_of(step.weights, value) for value in step.prepared]
    if len(roles["s"]) > len(cell.states):
        step.affine = "its step has several before it"
    else:
        step.affine = affine_stages(step.terms, step.states, cell.states, own)
    return step


def _compare(
    cell: Cell, terms: Expressions, states: list[int], leaves: dict[tuple[str, int], Tensor], numbers: torch.Generator
) -> None:
    """Refuse what was read if the step itself gives other values, or autograd other gradients."""
    with torch.enable_grad():
        leaves = {key: leaf.clone().requires_grad_() for key, leaf in leaves.items()}
        x, h, s, w = (
            cell.tuple_of(role)._make(leaf.clone() for (other, _), leaf in leaves.items() if other == role)
            for role in "xhsw"
        )
        versions = [part._version for part in s]
        result = cell.advance(x, h, s, w)
        check_step(cell, result, s[: len(cell.states)], versions[: len(cell.states)])
        arriving = [torch.empty_like(part).uniform_(-1, 1, generator=numbers) for part in result]
        loss = sum((part * gradient).sum() for part, gradient in zip(result, arriving, strict=True))
        wanted: Sequence[Tensor | None] = [None] * len(leaves)
        if isinstance(loss, Tensor) and loss.requires_grad:
            wanted = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)

    with torch.no_grad():
        gradient = differentiate(terms, states, [terms.leaf("g", j) for j in range(len(states))]).leaves
        known = {**leaves, **{("g", j): arrived for j, arrived in enumerate(arriving)}}
        for name, value, part in zip(cell.states, terms.evaluate(states, known), result, strict=True):
            if not _equal(value.expand_as(part), part):
                raise NotPointwiseError(f"{type(cell).__name__}.step gives {name} by another formula for other numbers")
        found = dict(zip(gradient, terms.evaluate(gradient.values(), known), strict=True))
        for (key, leaf), theirs in zip(leaves.items(), wanted, strict=True):
            ours = found.get(key, torch.zeros_like(leaf))
            ours = ours.expand_as(arriving[0]).sum(0) if key[0] == "w" else ours.expand_as(leaf)
            if not _equal(ours, torch.zeros_like(leaf) if theirs is None else theirs):
                raise NotPointwiseError(f"{type(cell).__name__}.step has a derivative that is not that of its formula")


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)


class _Tracer(fx.Tracer):
    """Follows a step that owns nothing: no module, no parameters, no tensors but its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.root = nn.Module()
        self.graph = fx.Graph(tracer_cls=type(self))

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Tensor):  # it could change behind our back
            raise NotPointwiseError("its step reads a tensor that is none of its arguments")
        return super().create_arg(a)


def _trace(cell: Cell, roles: dict[str, tuple[str, ...]]) -> tuple[Expressions, list[int]]:
    """The step's operations as expressions, and the next states among them."""
    tracer, terms = _Tracer(), Expressions()
    values: dict[fx.Node, int] = {}
    arguments: list[Tensors] = []
    for role, names in roles.items():
        proxies = [tracer.create_proxy("placeholder", f"{role}_{name}", (), {}) for name in names]
        values |= {proxy.node: terms.leaf(role, k) for k, proxy in enumerate(proxies)}
        arguments.append(cell.tuple_of(role)._make(proxies))  # type: ignore[arg-type]  # they stand for tensors
    result = _call(cell, arguments)
    for node in tracer.graph.nodes:
        if node.op != "placeholder":
            values[node] = _formula(node, terms, values)
    parts = result if isinstance(result, tuple | list) else ()
    if len(parts) != len(cell.states) or not all(isinstance(part, fx.Proxy) for part in parts):
        raise NotPointwiseError("its step does not return one tensor for each state")
    return terms, [values[part.node] for part in parts]


def _call(cell: Cell, arguments: Sequence[Tensors]) -> object:
    try:
        return cell.advance(*arguments)
    except RecurError:
        raise
    except Exception as error:  # whatever a step does with what is no tensor: PyTorch's own backends will show it
        raise NotPointwiseError(f"its step cannot be followed: {error}".splitlines()[0]) from error


def _formula(node: fx.Node, terms: Expressions, values: dict[fx.Node, int]) -> int:
    """One operation of the trace, as an expression of those before it."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    if name not in FORMULAS:
        raise NotPointwiseError(f"its step uses {name}, which is not among the pointwise operations")

    def value_of(argument: object) -> object:
        if isinstance(argument, fx.Node):
            return values[argument]
        if isinstance(argument, bool) or not isinstance(argument, int | float):
            return argument
        return terms.number(argument)

    options = {key: value_of(given) for key, given in node.kwargs.items()}
    try:
        return FORMULAS[name](terms, *map(value_of, node.args), **options)
    except (TypeError, ValueError) as error:
        raise NotPointwiseError(f"its step uses {name} in a way that is not known: {error}") from error


def _prepare(terms: Expressions, states: list[int]) -> Step:
    """Rename to a leaf all that depends on the cell's own weights alone."""
    uniform = set()
    for value, node in enumerate(terms.nodes):
        if node.op in ("w", "number") or (node.args and all(arg in uniform for arg in node.args)):
            uniform.add(value)
    made, renamed = Expressions(), dict[int, int]()
    prepared: list[int] = []
    for value in terms.reached_from(states):
        op, args, leaf = terms[value]
        if op == "number":
            renamed[value] = made.number(leaf)
        elif value in uniform:
            continue
        elif not args:
            renamed[value] = made.leaf(op, int(leaf))
        else:
            for arg in args:
                if arg in uniform and arg not in renamed:
                    renamed[arg] = made.leaf("w", len(prepared))
                    prepared.append(arg)
            renamed[value] = made(op, *(renamed[arg] for arg in args))
    for state in states:
        if state not in renamed:  # made of the cell's own weights alone
            renamed[state] = made.leaf("w", len(prepared))
            prepared.append(state)
    return Step(made, [renamed[state] for state in states], terms, prepared)
