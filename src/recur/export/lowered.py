"""The lowered form of a graph: loops over buffers, for one row, which a printer writes down in its own language.

A function has inputs, outputs, weights and work buffers, all of them flat rows of numbers, and a body of statements
that are done one after the other; no buffer is written twice. Sizes are whole numbers, or expressions of the letters
that a graph leaves open (T, S, N), which are arguments of the function, each with a bound.

    Each       for all i: to[at] = value, or to[at] += value
    Reduce     for all i: to[at] = the sum (or max, min, argmax) of value over all j
    Running    the same, of all values up to each
    Sort       rows of to, rising
    Product    to[r, n] = bias[n] + Σ_d x[r, d] · weight[n, d]
    Scan       a cell along steps: see recur.ops.operator

An expression is a number, a name (of a loop's counter or a letter), a number loaded from a buffer, or an operation,
named as in recur.compiler.expressions where that has it; `kind` says what it is: float, double, int or bool. Both, and
buffers, stand in lowered_values.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from recur.compiler.assembly import Code
from recur.export.lowered_values import Buffer, Call, Expr, Load, Name, Number, parts


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
