"""The lowered form of a graph: loops over buffers, for one row, which a printer writes down in its own language.

A function has inputs, outputs, weights and work buffers, all of them flat rows of numbers, and a body of statements
that are done one after the other; no buffer is written twice. Sizes are whole numbers, or expressions of the letters
that a graph leaves open (T, S, N), which are arguments of the function, each with a bound.

    Each       for all i: to[at] = value, or to[at] += value
    Reduce     for all i: to[at] = the sum (or max, min, argmax) of value over all j
    Running    the same, of all values up to each
    Sort       rows of to, rising
    Product    to[r, n] = bias[n] + Σ_d x[r, d] · weight[n, d]
    Scan       a cell along steps: see recur.native.operators

An expression is a number, a name (of a loop's counter or a letter), a number loaded from a buffer, or an operation,
named as in recur.program.expressions where that has it; `kind` says what it is: float, double, int or bool.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torch import Tensor

from recur.program.writer import Code

Kind: TypeAlias = Literal["float", "double", "int", "bool"]


# Expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    value: float
    """Whole for int and bool."""
    kind: Kind = "int"


@dataclass(frozen=True)
class Name:
    name: str
    kind: Kind = "int"


@dataclass(frozen=True)
class Load:
    buffer: Buffer
    at: Expr
    """The place in the flat buffer."""
    row: Expr | None = None
    column: Expr | None = None
    """Of a weight's row: a printer may lay matrices out in its own way."""

    @property
    def kind(self) -> Kind:
        return self.buffer.kind


@dataclass(frozen=True)
class Call:
    op: str
    args: tuple[Expr, ...]
    kind: Kind


Expr: TypeAlias = Number | Name | Load | Call

ZERO, ONE = Number(0), Number(1)


def whole(value: int | Expr) -> Expr:
    return Number(value) if isinstance(value, int) else value


def number_of(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Number) else None


def add(*terms: int | Expr) -> Expr:
    """Of whole numbers, with those that are known added up."""
    rest, known = list[Expr](), 0
    for term in map(whole, terms):
        for part in term.args if isinstance(term, Call) and term.op == "add" and term.kind == "int" else (term,):
            n = number_of(part)
            known, rest = (known + n, rest) if n is not None else (known, [*rest, part])
    found: Expr = rest[0] if rest else Number(known)
    for part in rest[1:]:
        found = Call("add", (found, part), "int")
    return found if not rest or not known else Call("add", (found, Number(known)), "int")


def mul(a: int | Expr, b: int | Expr) -> Expr:
    a, b = whole(a), whole(b)
    m, n = number_of(a), number_of(b)
    if m is not None and n is not None:
        return Number(m * n)
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
    a, b = whole(a), whole(b)
    n = number_of(b)
    if n is not None:
        return add(a, -n)
    return ZERO if a == b else Call("sub", (a, b), "int")


def divided(a: int | Expr, b: int) -> Expr:
    """⌊a / b⌋ of what is not negative."""
    a, n = whole(a), number_of(whole(a))
    return a if b == 1 else Number(n // b) if n is not None else Call("divide", (a, Number(b)), "int")


def rest(a: int | Expr, b: int) -> Expr:
    """a mod b of what is not negative."""
    a, n = whole(a), number_of(whole(a))
    return ZERO if b == 1 else Number(n % b) if n is not None else Call("rest", (a, Number(b)), "int")


def parts(expr: Expr) -> Iterator[Expr]:
    """An expression and all that it is made of."""
    yield expr
    inside: tuple[Expr | None, ...] = ()
    if isinstance(expr, Call):
        inside = expr.args
    elif isinstance(expr, Load):
        inside = (expr.at,)
    for part in inside:
        if part is not None:
            yield from parts(part)


# Buffers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Buffer:
    name: str
    shape: tuple[Expr, ...]
    kind: Kind
    value: Tensor | None = None
    """Of a weight."""

    @property
    def size(self) -> Expr:
        found: Expr = ONE
        for size in self.shape:
            found = mul(found, size)
        return found


@dataclass(eq=False)
class Weights:
    """The constants of all functions of a model, each once."""

    buffers: dict[tuple[object, ...], Buffer] = field(default_factory=dict)

    def of(self, tensor: Tensor, kind: Kind) -> Buffer:
        tensor = tensor.detach().cpu().contiguous()
        key = (kind, tuple(tensor.shape), hashlib.sha256(tensor.numpy().tobytes()).digest())
        if key not in self.buffers:
            shape = tuple(Number(n) for n in tensor.shape)
            self.buffers[key] = Buffer(f"w{len(self.buffers)}", shape, kind, tensor)
        return self.buffers[key]

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.buffers.values())


# Statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Each:
    to: Buffer
    shape: tuple[Expr, ...]
    """How often each counter counts: i0, i1, …"""
    at: Expr
    value: Expr
    adds: bool = False


@dataclass(frozen=True)
class Reduce:
    op: Literal["sum", "max", "min", "argmax"]
    to: Buffer
    shape: tuple[Expr, ...]
    over: tuple[Expr, ...]
    """Counters j0, j1, …, over which it is reduced; argmax has one."""
    at: Expr
    value: Expr


@dataclass(frozen=True)
class Running:
    """to[at] = Σ_{j0 ≤ this one} value: of counters i0, … and along j0."""

    to: Buffer
    shape: tuple[Expr, ...]
    along: Expr
    at: Expr
    value: Expr


@dataclass(frozen=True)
class Sort:
    """In place: rows of so many numbers each."""

    to: Buffer
    rows: Expr
    width: int


@dataclass(frozen=True)
class Product:
    to: Buffer
    x: Buffer
    weight: Buffer
    """(N, D)"""
    bias: Buffer | None
    rows: Expr


@dataclass(frozen=True)
class Block:
    """A part of a recurrent product: rows `to` … of all products, from what of the first state begins at `of`."""

    weight: Buffer
    """(rows, columns)"""
    to: int
    of: int


@dataclass(frozen=True)
class Scan:
    code: Code
    """One step of one unit: places `share` (U x + b of its gates), `product` (W h + b), `before`, `extra`, `after`."""
    steps: Expr
    data: Buffer
    """(steps, D)"""
    H: int
    gates: int
    products: int
    U: Buffer
    """(gates · H, D)"""
    W: tuple[Block, ...]
    """One of all products, or one of each head and product; nothing where there are none."""
    share_bias: Buffer | None
    product_bias: Buffer | None
    projection: Buffer | None
    """(P, H): what the first state becomes after every step."""
    extras: tuple[Buffer, ...]
    """(H,) each."""
    start: tuple[Buffer, ...]
    """Of each state; none where they start from zero."""
    outputs: tuple[tuple[int, Buffer], ...]
    """Which state, and where its history (steps, width) goes."""
    finals: tuple[Buffer, ...]
    """Where the states end up: also where they are while it runs."""


Statement: TypeAlias = Each | Reduce | Running | Sort | Product | Scan


@dataclass(frozen=True)
class Function:
    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    work: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    letters: dict[str, int]
    """Which sizes are open, and their bounds."""

    @property
    def weights(self) -> tuple[Buffer, ...]:
        """Those that it reads, in the order of first use."""
        return tuple(dict.fromkeys(buffer for one in self.body for buffer in read(one) if buffer.value is not None))


def written(one: Statement) -> list[Buffer]:
    if isinstance(one, Scan):
        return [*(buffer for _, buffer in one.outputs), *one.finals]
    return [one.to]


def read(one: Statement) -> list[Buffer]:
    """The buffers that a statement reads."""
    if isinstance(one, Product):
        return [one.x, one.weight, *([] if one.bias is None else [one.bias])]
    if isinstance(one, Scan):
        some = [one.share_bias, one.product_bias, one.projection]
        return [
            one.data,
            one.U,
            *(b.weight for b in one.W),
            *(b for b in some if b is not None),
            *one.extras,
            *one.start,
        ]
    if isinstance(one, Sort):
        return [one.to]
    return [part.buffer for expr in (one.at, one.value) for part in parts(expr) if isinstance(part, Load)]


def largest(size: Expr, letters: dict[str, int]) -> int:
    """How much a size may be."""
    if isinstance(size, Number):
        return int(size.value)
    if isinstance(size, Name):
        return letters[size.name]
    assert isinstance(size, Call), size
    values = [largest(arg, letters) for arg in size.args]
    match size.op:
        case "add":
            return sum(values)
        case "mul":
            return math.prod(values)
        case "sub":
            return values[0] - values[1]
        case "divide":
            return values[0] // values[1]
    raise AssertionError(size.op)


def linear(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The place of an element in a flat buffer."""
    found: Expr = ZERO
    for index, size in zip(indices, shape, strict=True):
        found = add(mul(found, size), index)
    return found
