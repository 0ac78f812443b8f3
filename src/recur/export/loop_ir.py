"""Loop representation of a graph for one row: loops over flat buffers, which the C and JavaScript printers write down.

A function has inputs, outputs, weights and work buffers, and a body of statements that run in order. No buffer is
written twice. Sizes are integers or expressions of the dynamic sizes (T, S, N), which are arguments with a bound.

    ElementLoop      for all i: to[at] = value, or to[at] += value
    ReduceLoop       for all i: to[at] = sum (or max, min, argmax) of value over all j
    CumulativeSum    running sum along one axis
    SortRows         sort each row of `to` in ascending order
    MatMul           to[r, n] = bias[n] + Σ_d x[r, d] · weight[n, d]
    ScanLoop         a recurrent cell along the steps: see recur.ops.cpu.operators

An expression is a constant, a variable (loop counter or dynamic size), a load from a buffer, or a call of an operation
named as in recur.compiler.expressions. Its `kind` is float, double, int or bool.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torch import Tensor

from recur.compiler.assembly import Code

NumberKind: TypeAlias = Literal["float", "double", "int", "bool"]


@dataclass(frozen=True)
class Constant:
    """Number known at export."""

    value: float
    """An integer for kinds int and bool."""
    kind: NumberKind = "int"


@dataclass(frozen=True)
class Variable:
    """Loop counter or dynamic size."""

    name: str
    kind: NumberKind = "int"


@dataclass(frozen=True)
class Load:
    """Element of a buffer."""

    buffer: Buffer
    at: Expr
    """Offset in the flat buffer."""
    row: Expr | None = None
    column: Expr | None = None
    """Row and column of a weight: a printer may store matrices in its own layout."""

    @property
    def kind(self) -> NumberKind:
        return self.buffer.kind


@dataclass(frozen=True)
class Call:
    """Operation on expressions."""

    op: str
    args: tuple[Expr, ...]
    kind: NumberKind


Expr: TypeAlias = Constant | Variable | Load | Call

ZERO, ONE = Constant(0), Constant(1)


def as_expr(value: int | Expr) -> Expr:
    return Constant(value) if isinstance(value, int) else value


def constant_value(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Constant) else None


def add(*terms: int | Expr) -> Expr:
    """Return the sum of integers, with constants folded."""
    rest, known = list[Expr](), 0
    for term in map(as_expr, terms):
        for part in term.args if isinstance(term, Call) and term.op == "add" and term.kind == "int" else (term,):
            n = constant_value(part)
            known, rest = (known + n, rest) if n is not None else (known, [*rest, part])
    found: Expr = rest[0] if rest else Constant(known)
    for part in rest[1:]:
        found = Call("add", (found, part), "int")
    return found if not rest or not known else Call("add", (found, Constant(known)), "int")


def mul(a: int | Expr, b: int | Expr) -> Expr:
    a, b = as_expr(a), as_expr(b)
    m, n = constant_value(a), constant_value(b)
    if m is not None and n is not None:
        return Constant(m * n)
    if m == 0 or n == 0:
        return ZERO
    if m == 1:
        return b
    if n == 1:
        return a
    if n is not None and isinstance(a, Call) and a.op == "add" and a.kind == "int":
        return add(*(mul(part, n) for part in a.args))
    return Call("mul", (a, b), "int")


def sub(a: int | Expr, b: int | Expr) -> Expr:
    a, b = as_expr(a), as_expr(b)
    n = constant_value(b)
    if n is not None:
        return add(a, -n)
    return ZERO if a == b else Call("sub", (a, b), "int")


def subexpressions(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all of its parts."""
    yield expr
    inside = expr.args if isinstance(expr, Call) else (expr.at,) if isinstance(expr, Load) else ()
    for part in inside:
        yield from subexpressions(part)


def loads(expr: Expr) -> list[Load]:
    """Return all loads of an expression, including those in offsets."""
    return [part for part in subexpressions(expr) if isinstance(part, Load)]


# Buffers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Buffer:
    """Flat array of numbers with a shape."""

    name: str
    shape: tuple[Expr, ...]
    kind: NumberKind
    value: Tensor | None = None
    """Numbers of a weight; None for inputs, outputs and work buffers."""

    @property
    def size(self) -> Expr:
        found: Expr = ONE
        for size in self.shape:
            found = mul(found, size)
        return found


@dataclass(eq=False)
class WeightTable:
    """Constants of all functions of a model, each stored once."""

    buffers: dict[tuple[object, ...], Buffer] = field(default_factory=dict)

    def of(self, tensor: Tensor, kind: NumberKind) -> Buffer:
        tensor = tensor.detach().cpu().contiguous()
        key = (kind, tuple(tensor.shape), hashlib.sha256(tensor.numpy().tobytes()).digest())
        if key not in self.buffers:
            shape = tuple(Constant(n) for n in tensor.shape)
            self.buffers[key] = Buffer(f"w{len(self.buffers)}", shape, kind, tensor)
        return self.buffers[key]

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.buffers.values())


def flat_index(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Return the offset of an element in a flat buffer."""
    found: Expr = ZERO
    for index, size in zip(indices, shape, strict=True):
        found = add(mul(found, size), index)
    return found


@dataclass(frozen=True)
class ElementLoop:
    """Loop over counters i0, i1, … that stores one element each."""

    to: Buffer
    shape: tuple[Expr, ...]
    """Bounds of the counters."""
    at: Expr
    value: Expr
    adds: bool = False


@dataclass(frozen=True)
class ReduceLoop:
    """Reduction over counters j0, j1, … for each i0, i1, …"""

    op: Literal["sum", "max", "min", "argmax"]
    to: Buffer
    shape: tuple[Expr, ...]
    over: tuple[Expr, ...]
    """Bounds of j0, j1, …; argmax has one."""
    at: Expr
    value: Expr


@dataclass(frozen=True)
class CumulativeSum:
    """to[at] = Σ_{j ≤ j0} value, for counters i0, … and along j0."""

    to: Buffer
    shape: tuple[Expr, ...]
    along: Expr
    at: Expr
    value: Expr


@dataclass(frozen=True)
class SortRows:
    """In-place sort of rows of `width` numbers."""

    to: Buffer
    rows: Expr
    width: int


@dataclass(frozen=True)
class MatMul:
    """Product of rows with a weight matrix."""

    to: Buffer
    x: Buffer
    weight: Buffer
    """(N, D)"""
    bias: Buffer | None
    rows: Expr


@dataclass(frozen=True)
class WeightBlock:
    """Block of the recurrent product: rows `to` … of all products, computed from the first state starting at `of`."""

    weight: Buffer
    """(rows, columns)"""
    to: int
    of: int


@dataclass(frozen=True)
class ScanLoop:
    """Recurrent cell along the steps."""

    code: Code
    """One step of one unit. Operand kinds: `share` (U x + b of its gates), `product` (W h + b), `before`, `extra`,
    `after`."""
    steps: Expr
    data: Buffer
    """(steps, D)"""
    H: int
    gates: int
    products: int
    U: Buffer
    """(gates · H, D)"""
    W: tuple[WeightBlock, ...]
    """One block for all products, or one per head and product; empty if the cell has no recurrent product."""
    share_bias: Buffer | None
    product_bias: Buffer | None
    projection: Buffer | None
    """(P, H): projection of the first state after every step."""
    extras: tuple[Buffer, ...]
    """(H,) each."""
    start: tuple[Buffer, ...]
    """Initial states; empty if they are zero."""
    outputs: tuple[tuple[int, Buffer], ...]
    """Index of a state and the buffer (steps, width) for its history."""
    finals: tuple[Buffer, ...]
    """Buffers of the final states, which also hold the states while the loop runs."""


Statement: TypeAlias = ElementLoop | ReduceLoop | CumulativeSum | SortRows | MatMul | ScanLoop


@dataclass(frozen=True)
class LoopFunction:
    """One graph as loops."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    work: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    letters: dict[str, int]
    """Dynamic sizes and their bounds."""

    @property
    def weights(self) -> tuple[Buffer, ...]:
        """Weights that the function reads, in the order of first use."""
        return tuple(
            dict.fromkeys(buffer for one in self.body for buffer in buffers_read(one) if buffer.value is not None)
        )


def is_read(code: Code, place: int) -> bool:
    """Return True if an instruction of a cell's program reads the operand."""
    return any(place in operands[1:] for _, operands in code.instructions)


def buffers_written(one: Statement) -> list[Buffer]:
    if isinstance(one, ScanLoop):
        return [*(buffer for _, buffer in one.outputs), *one.finals]
    return [one.to]


def buffers_read(one: Statement) -> list[Buffer]:
    """Return the buffers that a statement reads."""
    if isinstance(one, MatMul):
        return [one.x, one.weight, *([] if one.bias is None else [one.bias])]
    if isinstance(one, ScanLoop):
        some = [one.share_bias, one.product_bias, one.projection]
        weights = [one.U, *(block.weight for block in one.W), *(weight for weight in some if weight is not None)]
        return [one.data, *weights, *one.extras, *one.start]
    if isinstance(one, SortRows):
        return [one.to]
    return [load.buffer for expr in (one.at, one.value) for load in loads(expr)]


def max_size(size: Expr, letters: dict[str, int]) -> int:
    """Return the largest value of a size."""
    if isinstance(size, Constant):
        return int(size.value)
    if isinstance(size, Variable):
        return letters[size.name]
    assert isinstance(size, Call), size
    values = [max_size(arg, letters) for arg in size.args]
    match size.op:
        case "add":
            return sum(values)
        case "mul":
            return math.prod(values)
        case "sub":
            return values[0] - values[1]
    raise AssertionError(size.op)
