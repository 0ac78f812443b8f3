"""The operations of PyTorch's graphs that are lowered, by name: what each becomes, for one row."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from recur.export.lowered_values import Call, Expr, Kind, Number, add, mul, number_of, sub
from recur.export.lowering import Index, Lazy, Lowering, Value

SIZES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.sym_size.int: lambda low, x, k: _shape_of(low, x)[k],
    operator.add: lambda low, a, b: add(low.size(a), low.size(b)),
    operator.sub: lambda low, a, b: sub(low.size(a), low.size(b)),
    operator.mul: lambda low, a, b: mul(low.size(a), low.size(b)),
}
"""Arithmetic of sizes."""


def _shape_of(low: Lowering, x: Value) -> tuple[Expr, ...]:
    return tuple(map(Number, x.shape)) if isinstance(x, Tensor) else x.shape


OPERATIONS: dict[str, Callable[..., Any]] = {}


def operation(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return keep


# Number by number -------------------------------------------------------------------------------------------------


def broadcast(low: Lowering, value: Value, shape: Sequence[Expr]) -> Callable[[Index], Expr]:
    """An operand as a function of the result's index. One that is computed and read more than once is stored first."""
    lazy = low.lazy(value)
    missing = len(shape) - len(lazy.shape)
    own = (*[Number(1)] * missing, *lazy.shape)
    stretched = any(number_of(size) != 1 and number_of(mine) == 1 for size, mine in zip(shape, own, strict=True))
    if stretched and lazy.computed:
        lazy = low.stored(lazy)

    def at(index: Index) -> Expr:
        tail = zip(index[missing:], lazy.shape, strict=True)
        return lazy.at([Number(0) if number_of(size) == 1 else i for i, size in tail])

    return at


def cast(expr: Expr, kind: Kind) -> Expr:
    if expr.kind == kind:
        return expr
    if isinstance(expr, Number):
        made = {"bool": bool, "int": int}.get(kind, float)
        return Number(made(expr.value), kind)
    return Call(f"to_{kind}", (expr,), kind)


def pointwise(op: str, compares: bool = False) -> Callable[..., Lazy]:
    def made(low: Lowering, node: fx.Node, *args: Value, **kwargs: Any) -> Lazy:
        alpha = kwargs.pop("alpha", 1)
        shape, kind = low.shape(node), low.kind(node)
        reads = [broadcast(low, arg, shape) for arg in args]
        lazies = [low.lazy(arg) for arg in args]
        inside = _wider([lazy.kind for lazy in lazies]) if compares else kind

        def at(index: Index) -> Expr:
            values = [cast(read(index), inside) for read in reads]
            if alpha != 1:
                values[1] = Call("mul", (cast(Number(alpha), inside), values[1]), inside)
            return Call("and" if (op, kind) == ("mul", "bool") else op, tuple(values), kind)

        costly = kind in ("float", "double") or any(lazy.computed for lazy in lazies)
        return Lazy(shape, kind, at, computed=costly)

    return made


def _wider(kinds: Sequence[Kind]) -> Kind:
    order: tuple[Kind, ...] = ("bool", "int", "float", "double")
    return max(kinds, key=order.index)


for _name, _op in {
    "add.Tensor": "add", "sub.Tensor": "sub", "mul.Tensor": "mul", "div.Tensor": "div", "neg.default": "neg",
    "tanh.default": "tanh", "sigmoid.default": "sigmoid", "relu.default": "relu", "exp.default": "exp",
    "log.default": "log", "log1p.default": "log1p", "expm1.default": "expm1", "sqrt.default": "sqrt",
    "sin.default": "sin", "cos.default": "cos", "erf.default": "erf", "abs.default": "abs", "sign.default": "sign",
    "maximum.default": "maximum", "minimum.default": "minimum", "remainder.Scalar": "remainder",
    "logical_and.default": "and", "logical_or.default": "or", "logical_not.default": "not",
    "bitwise_and.Tensor": "and", "bitwise_or.Tensor": "or", "bitwise_not.default": "not",
}.items():  # fmt: skip
    OPERATIONS[_name] = pointwise(_op)
for _name, _op in {"eq": "equal", "ne": "unequal", "lt": "less", "le": "less_equal"}.items():
    OPERATIONS[f"{_name}.Scalar"] = OPERATIONS[f"{_name}.Tensor"] = pointwise(_op, compares=True)


def _turned(op: str) -> Callable[..., Lazy]:
    made = pointwise(op, compares=True)
    return lambda low, node, a, b: made(low, node, b, a)


for _name, _op in {"gt": "less", "ge": "less_equal"}.items():
    OPERATIONS[f"{_name}.Scalar"] = OPERATIONS[f"{_name}.Tensor"] = _turned(_op)


@operation("where.self")
def where(low: Lowering, node: fx.Node, which: Value, a: Value, b: Value) -> Lazy:
    shape, kind = low.shape(node), low.kind(node)
    reads = [broadcast(low, arg, shape) for arg in (which, a, b)]

    def at(index: Index) -> Expr:
        chosen, one, other = (read(index) for read in reads)
        return Call("select", (chosen, cast(one, kind), cast(other, kind)), kind)

    return Lazy(shape, kind, at, computed=True)


@operation("clamp.default", "clamp.Tensor")
def clamp(low: Lowering, node: fx.Node, x: Value, least: Value = None, most: Value = None) -> Lazy:
    found = low.lazy(x)
    if least is not None:
        found = pointwise("maximum")(low, node, found, least)
    return found if most is None else pointwise("minimum")(low, node, found, most)


@operation("pow.Tensor_Scalar")
def power(low: Lowering, node: fx.Node, x: Value, exponent: float) -> Lazy:
    if exponent == 2:
        x = low.cheap(x)
        return pointwise("mul")(low, node, x, x)
    return pointwise("pow")(low, node, x, exponent)


@operation("reciprocal.default")
def reciprocal(low: Lowering, node: fx.Node, x: Value) -> Lazy:
    return pointwise("div")(low, node, 1.0, x)


@operation("_to_copy.default")
def to_copy(low: Lowering, node: fx.Node, x: Value, **_: Any) -> Lazy:
    lazy, kind = low.lazy(x), low.kind(node)
    if lazy.kind == kind:
        return lazy
    return Lazy(lazy.shape, kind, lambda index: cast(lazy.at(index), kind), computed=lazy.computed)


@operation("clone.default", "alias.default", "lift_fresh_copy.default", "detach.default", "contiguous.default")
def same(low: Lowering, node: fx.Node, x: Value, **_: Any) -> Value:
    return x


@operation("full.default")
def full(low: Lowering, node: fx.Node, shape: Any, value: Value, **_: Any) -> Lazy:
    return _filled(low, node, value)


@operation("full_like.default", "zeros_like.default", "ones_like.default")
def full_like(low: Lowering, node: fx.Node, x: Value, value: Value = 0, **_: Any) -> Lazy:
    return _filled(low, node, 1 if "ones" in str(node.target) else value)


def _filled(low: Lowering, node: fx.Node, value: Value) -> Lazy:
    kind = low.kind(node)
    number = cast(low.lazy(value).at([]), kind)
    return Lazy(low.shape(node), kind, lambda index: number)


@operation("arange.start_step")
def arange(low: Lowering, node: fx.Node, start: Value, end: Value, step: Value = 1, **_: Any) -> Lazy:
    kind = low.kind(node)
    return Lazy(low.shape(node), kind, lambda index: cast(add(low.size(start), mul(index[0], low.size(step))), kind))


def dim_of(lazy: Lazy, dim: int) -> int:
    return dim % len(lazy.shape)


def inside(index: Expr, size: Expr) -> Expr:
    """0 ≤ index < size"""
    above = Call("less_equal", (Number(0), index), "bool")
    return Call("and", (above, Call("less", (index, size), "bool")), "bool")
