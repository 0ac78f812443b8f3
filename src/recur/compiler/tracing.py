"""Tracing of a cell's step into expressions.

torch.fx records the operations of the step. Pointwise operations become expressions (see formulas.py); other operations
and control flow that depends on values are refused with the name of the operation. The expressions are then compared
with the step itself on random numbers, values and gradients. This finds what a trace does not show, for example a
custom derivative.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, fx, nn

from recur.cells.cell import Cell, Tensors
from recur.cells.contract import check_step
from recur.cells.matrix import MatrixCell
from recur.compiler.affine import AffineStep, affine_stages, range_of
from recur.compiler.expressions import Expressions, differentiate
from recur.compiler.formulas import FORMULAS
from recur.errors import CellError, RecurError

VIEWS = ("detach", "unflatten", "flatten")
"""Operations of a step whose result shares the memory of their argument."""


class NotPointwiseError(CellError):
    """A step that is not a fixed sequence of pointwise operations."""


@dataclass
class TracedStep:
    """A step as expressions."""

    terms: Expressions
    states: list[int]
    """The next states."""
    weights: Expressions
    prepared: list[int]
    """Values of `weights` that depend on the cell's extra weights only: vectors over units, computed once per
    scan, in PyTorch. They are the leaves `w` of `terms`. A weight that is used unchanged is listed too."""
    affine: AffineStep | str = ""
    """The step as affine maps of its states, or the reason why it is not affine."""


def check_pointwise(cell: Cell) -> None:
    """Raise if the cell declares a step that cannot be compiled."""
    if isinstance(cell, MatrixCell):
        raise NotPointwiseError("its state is a matrix, which a step reads and writes as a whole")
    if not cell.pointwise:
        raise NotPointwiseError(f"{type(cell).__name__} has pointwise = False")
    if type(cell).multiplied is not Cell.multiplied:
        raise NotPointwiseError(f"{type(cell).__name__} multiplies something else than its first state")
    for name in ("product", "projected", "output", "start"):
        if getattr(type(cell), name) is not getattr(Cell, name):
            raise NotPointwiseError(f"{type(cell).__name__} overrides {name}")


def trace_step(cell: Cell) -> TracedStep:
    check_pointwise(cell)
    if cell.call_inputs or cell.noise:
        raise NotPointwiseError(f"{type(cell).__name__} reads {', '.join(cell.step_inputs)} at each step")
    roles = {role: cell.tuple_of(role)._fields for role in "xhsw"}
    terms, states = trace_operations(cell)
    numbers = torch.Generator().manual_seed(0)
    for low, high in ((0.1, 2.0), (-6.0, 6.0)):  # positive numbers, where log and sqrt are defined; and all numbers
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
        if isinstance(result, tuple | list):  # a mask times a number is of the default dtype, not of that of this probe
            result = [
                part.double() if isinstance(part, Tensor) and part.dtype == torch.float32 else part for part in result
            ]
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


class StepProxy(fx.Proxy):
    """Traced tensor with in-place operators, which fx.Proxy lacks: Python would run `v += 1` as `v = v + 1`."""


def _operator(method: str) -> Callable[[fx.Proxy, object], fx.Proxy]:
    def write(self: fx.Proxy, other: object) -> fx.Proxy:
        changed: fx.Proxy = getattr(self, method)(other)
        return changed

    return write


for _name in ("add", "sub", "mul", "truediv", "mod", "pow"):
    setattr(StepProxy, f"__i{_name}__", _operator({"truediv": "div", "mod": "remainder"}.get(_name, _name) + "_"))


class StepTracer(fx.Tracer):
    """Tracer of a step that reads no tensors other than its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.root = nn.Module()
        self.graph = fx.Graph(tracer_cls=type(self))

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return StepProxy(node, self)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Tensor):  # a captured tensor may change later, and the program would not notice
            raise NotPointwiseError("its step reads a tensor that is none of its arguments")
        return super().create_arg(a)


@dataclass
class SourceNames:
    """Names that the source code of a step gives to its values."""

    names: dict[str, int] = field(default_factory=dict)
    """The local variables at the return statement, and their values."""
    functions: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """The values that are results of PyTorch functions: name and arguments."""


def trace_operations(cell: Cell, source: SourceNames | None = None) -> tuple[Expressions, list[int]]:
    """Return the operations of a step as expressions, and the next states among them.

    source: filled with the names that the step gives to its values
    """
    roles = {role: cell.tuple_of(role)._fields for role in "xhsw"}
    tracer, terms = StepTracer(), Expressions()
    values: dict[fx.Node, int] = {}
    memory = SharedMemory(values)
    arguments: list[Tensors] = []
    for role, names in roles.items():
        proxies = [tracer.create_proxy("placeholder", f"{role}_{name}", (), {}) for name in names]
        values |= {proxy.node: terms.leaf(role, k) for k, proxy in enumerate(proxies)}
        arguments.append(cell.tuple_of(role)._make(proxies))  # type: ignore[arg-type]  # they stand for tensors
    with _watched(cell.step, watch=source is not None) as variables:
        result = call_step(cell, arguments)
    for node in tracer.graph.nodes:
        if node.op != "placeholder":
            values[node] = _formula(node, terms, values)
            if source is not None and all(isinstance(arg, fx.Node) for arg in node.args) and not node.kwargs:
                inside = tuple(values[arg] for arg in node.args if isinstance(arg, fx.Node))
                source.functions[values[node]] = name_of(node), inside
            memory.record(node)
    parts = result if isinstance(result, tuple | list) else ()
    if len(parts) != len(cell.states) or not all(isinstance(part, fx.Proxy) for part in parts):
        raise NotPointwiseError("its step does not return one tensor for each state")
    if source is not None:
        source.names = {name: values[value.node] for name, value in variables.items() if isinstance(value, fx.Proxy)}
    return terms, [values[part.node] for part in parts]


@contextmanager
def _watched(step: Callable[..., object], *, watch: bool) -> Iterator[dict[str, object]]:
    """Collect the local variables of a step when it returns, by a profile function."""
    code = getattr(step, "__code__", None) or getattr(getattr(step, "__func__", None), "__code__", None)
    variables: dict[str, object] = {}

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code is code:
            variables.update(frame.f_locals)

    before = sys.getprofile()
    if watch:
        sys.setprofile(profile)
    try:
        yield variables
    finally:
        sys.setprofile(before)


def call_step(cell: Cell, arguments: Sequence[Tensors]) -> object:
    try:
        return cell.advance(*arguments)
    except RecurError:
        raise
    except Exception as error:  # a step may fail in any way on proxies; the loop shows whether it works on tensors
        raise NotPointwiseError(f"its step cannot be followed: {error}".splitlines()[0]) from error


def name_of(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def formula_of(node: fx.Node) -> str:
    """Return the name of the formula of an operation: an in-place operation has that of the operation without `_`."""
    name = name_of(node)
    plain = {"zero_": "zeros_like"}.get(name, name.removesuffix("_"))
    return plain if name not in FORMULAS and plain in FORMULAS else name


class SharedMemory:
    """Traced tensors that share memory: an in-place operation changes the values of all of them."""

    def __init__(self, values: dict[fx.Node, Any]) -> None:
        self.values = values
        self.owners: dict[fx.Node, fx.Node] = {}
        """For a view, and for the result of an in-place operation, the node that made the tensor."""

    def record(self, node: fx.Node) -> None:
        """Record a traced operation whose value is known."""
        in_place = formula_of(node) != name_of(node) or node.kwargs.get("inplace") is True
        changed = node.args[0] if node.args else None
        if not isinstance(changed, fx.Node) or not (in_place or name_of(node) in VIEWS):
            return
        owner = self.owners.get(changed, changed)
        self.owners[node] = owner
        if in_place and owner.op == "placeholder":
            raise NotPointwiseError(f"its step changes its argument {owner.target} in place; write a new tensor")
        if in_place:
            for other in [owner, *(view for view, of in self.owners.items() if of is owner)]:
                self.values[other] = self.values[node]


def _formula(node: fx.Node, terms: Expressions, values: dict[fx.Node, int]) -> int:
    """Convert one traced operation to an expression."""
    name = formula_of(node)
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


def _prepare(terms: Expressions, states: list[int]) -> TracedStep:
    """Replace every value that depends on extra weights only by a leaf `w`."""
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
        if state not in renamed:  # a state that depends on extra weights only
            renamed[state] = made.leaf("w", len(prepared))
            prepared.append(state)
    return TracedStep(made, [renamed[state] for state in states], terms, prepared)
