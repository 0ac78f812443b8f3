"""Expressions and buffers of the lowered form; see lowered.py."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torch import Tensor

Kind: TypeAlias = Literal["float", "double", "int", "bool"]


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


def linear(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The place of an element in a flat buffer."""
    found: Expr = ZERO
    for index, size in zip(indices, shape, strict=True):
        found = add(mul(found, size), index)
    return found
