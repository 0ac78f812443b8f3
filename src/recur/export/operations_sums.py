"""Operations that make one number of many: sums, products, the scan; see operations.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from recur.export.lowered import Each, Product, Reduce, Running, Sort
from recur.export.lowered_values import ONE, Call, Expr, Number, add, linear, mul, number_of
from recur.export.lowering import Index, Lazy, Lowering, Value, counters
from recur.export.operations import OPERATIONS, cast, dim_of, inside, operation, pointwise


def _dims(lazy: Lazy, dims: Any) -> list[int]:
    if dims is None or dims == []:
        return list(range(len(lazy.shape)))
    some = [dims] if isinstance(dims, int) else dims
    return [dim_of(lazy, d) for d in some]


def _reduced(op: str) -> Callable[..., Lazy]:
    def made(low: Lowering, node: fx.Node, x: Value, dims: Any = None, keep: bool = False, **_: Any) -> Lazy:
        lazy = low.lazy(x)
        kind = low.kind(node)
        if lazy.kind != kind and op != "argmax":
            inner = lazy
            lazy = Lazy(inner.shape, kind, lambda index: cast(inner.at(index), kind), computed=inner.computed)
        found = low.reduce(op, lazy, _dims(lazy, dims), kind)
        assert found.buffer is not None
        return found if keep else low.of_buffer(found.buffer, low.shape(node))

    return made


OPERATIONS |= {"sum.dim_IntList": _reduced("sum"), "amax.default": _reduced("max"), "amin.default": _reduced("min")}
OPERATIONS |= {"argmax.default": _reduced("argmax")}


@operation("mean.dim")
def mean(low: Lowering, node: fx.Node, x: Value, dims: Any, keep: bool = False, **_: Any) -> Lazy:
    lazy, kind = low.lazy(x), low.kind(node)
    count: Expr = ONE
    for d in _dims(lazy, dims):
        count = mul(count, lazy.shape[d])
    total = _reduced("sum")(low, node, lazy, dims, keep)
    return Lazy(total.shape, kind, lambda index: Call("div", (total.at(index), cast(count, kind)), kind), computed=True)


@operation("_softmax.default")
def softmax(low: Lowering, node: fx.Node, x: Value, dim: int, half: bool) -> Lazy:
    found, total, _ = _exponentials(low, low.cheap(x), dim)
    kind = found.kind
    return Lazy(found.shape, kind, lambda index: Call("div", (found.at(index), total(index)), kind), computed=True)


@operation("_log_softmax.default")
def log_softmax(low: Lowering, node: fx.Node, x: Value, dim: int, half: bool) -> Lazy:
    lazy = low.cheap(x)
    kind = lazy.kind
    _, total, most = _exponentials(low, lazy, dim)

    def at(index: Index) -> Expr:
        return Call("sub", (Call("sub", (lazy.at(index), most(index)), kind), Call("log", (total(index),), kind)), kind)

    return Lazy(lazy.shape, kind, at, computed=True)


def _exponentials(low: Lowering, lazy: Lazy, dim: int) -> tuple[Lazy, Callable[[Index], Expr], Callable[[Index], Expr]]:
    """exp(x − max x), their sum, and the max, of all numbers along a dimension."""
    at, kind = dim_of(lazy, dim), lazy.kind

    def along(reduced: Lazy) -> Callable[[Index], Expr]:
        return lambda index: reduced.at([Number(0) if k == at else i for k, i in enumerate(index)])

    most = along(low.reduce("max", lazy, [at]))
    powers = low.stored(
        Lazy(lazy.shape, kind, lambda index: Call("exp", (Call("sub", (lazy.at(index), most(index)), kind),), kind))
    )
    return powers, along(low.reduce("sum", powers, [at])), most


@operation("cumsum.default")
def cumsum(low: Lowering, node: fx.Node, x: Value, dim: int, **_: Any) -> Lazy:
    lazy = low.lazy(x)
    at, shape = dim_of(lazy, dim), lazy.shape
    buffer, index = low.new(shape, lazy.kind), counters("i", [*shape[:at], *shape[at + 1 :]])
    whole = [*index[:at], *counters("j", [shape[at]]), *index[at:]]
    kept = (*shape[:at], *shape[at + 1 :])
    low.body.append(Running(buffer, kept, shape[at], linear(whole, shape), lazy.at(whole)))
    return low.of_buffer(buffer)


@operation("sort.default")
def sort(low: Lowering, node: fx.Node, x: Value, dim: int = -1, descending: bool = False) -> list[Lazy]:
    lazy = low.lazy(x)
    shape = lazy.shape
    buffer, index, rows = low.new(shape, lazy.kind), counters("i", shape), low.size(1)
    for size in shape[:-1]:
        rows = mul(rows, size)
    low.body.append(Each(buffer, shape, linear(index, shape), lazy.at(index)))
    width = number_of(shape[-1])
    assert width is not None
    assert not descending
    low.body.append(Sort(buffer, rows, width))
    return [low.of_buffer(buffer)]


@operation("scatter_add.default")
def scatter_add(low: Lowering, node: fx.Node, x: Value, dim: int, places: Value, source: Value) -> Lazy:
    lazy, where_, added = low.lazy(x), low.cheap(places), low.lazy(source)
    at, buffer = dim_of(lazy, dim), low.new(lazy.shape, lazy.kind)
    index = counters("i", lazy.shape)
    low.body.append(Each(buffer, lazy.shape, linear(index, lazy.shape), lazy.at(index)))
    index = counters("i", added.shape)
    to = [*index[:at], where_.at(index), *index[at + 1 :]]
    low.body.append(Each(buffer, added.shape, linear(to, lazy.shape), added.at(index), adds=True))
    return low.of_buffer(buffer)


# Products ---------------------------------------------------------------------------------------------------------


@operation("mm.default")
def mm(low: Lowering, node: fx.Node, x: Value, weight: Value) -> Lazy:
    return _product(low, low.shape(node), x, weight, None)


@operation("addmm.default")
def addmm(low: Lowering, node: fx.Node, bias: Value, x: Value, weight: Value) -> Lazy:
    if isinstance(bias, Tensor) and bias.dim() == 1:
        return _product(low, low.shape(node), x, weight, bias)
    return pointwise("add")(low, node, bias, _product(low, low.shape(node), x, weight, None))


def _product(low: Lowering, shape: tuple[Expr, ...], x: Value, weight: Value, bias: Tensor | None) -> Lazy:
    if not isinstance(weight, Tensor):
        assert bias is None
        return _sums(low, shape, low.cheap(x), low.cheap(weight))
    given = low.stored(low.lazy(x))
    kind = given.kind
    assert given.buffer is not None
    buffer = low.new(shape, kind)
    matrix = low.weights.of(weight.t(), kind)
    added = None if bias is None else low.weights.of(bias, kind)
    low.body.append(Product(buffer, given.buffer, matrix, added, shape[0]))
    return low.of_buffer(buffer)


@operation("bmm.default")
def bmm(low: Lowering, node: fx.Node, a: Value, b: Value) -> Lazy:
    if isinstance(b, Tensor) and b.shape[0] == 1:
        found = _product(low, low.shape(node)[1:], _rows(low, a), b[0], None)
        assert found.buffer is not None
        return low.of_buffer(found.buffer, low.shape(node))
    return _sums(low, low.shape(node), low.cheap(a), low.cheap(b))


def _rows(low: Lowering, a: Value) -> Lazy:
    lazy = low.stored(low.lazy(a))
    assert lazy.buffer is not None
    return low.of_buffer(lazy.buffer, lazy.shape[1:])


def _sums(low: Lowering, shape: tuple[Expr, ...], a: Lazy, b: Lazy) -> Lazy:
    """(…, M, D) × (…, D, N), neither of them known."""
    kind = a.kind
    buffer, index, over = low.new(shape, kind), counters("i", shape), (a.shape[-1],)
    (d,) = counters("j", over)
    value = Call("mul", (a.at([*index[:-1], d]), b.at([*index[:-2], d, index[-1]])), kind)
    low.body.append(Reduce("sum", buffer, shape, over, linear(index, shape), value))
    return low.of_buffer(buffer)


@operation("convolution.default")
def convolution(
    low: Lowering, node: fx.Node, x: Value, weight: Value, bias: Value, stride: Any, padding: Any, *more: Any
) -> Lazy:
    """Of one dimension, (1, C, L) by (O, C, K)."""
    lazy, kernel, shape, kind = low.cheap(x), low.lazy(weight), low.shape(node), low.kind(node)
    step, before = stride[0], padding[0]
    buffer, index = low.new(shape, kind), counters("i", shape)
    over = (kernel.shape[1], kernel.shape[2])
    c, k = counters("j", over)
    place = add(mul(index[2], step), k, -before)
    value = Call("mul", (lazy.at([index[0], c, place]), kernel.at([index[1], c, k])), kind)
    if before:
        value = Call("select", (inside(place, lazy.shape[2]), value, cast(Number(0), kind)), kind)
    low.body.append(Reduce("sum", buffer, shape, over, linear(index, shape), value))
    found = low.of_buffer(buffer)
    if bias is None:
        return found
    added = low.lazy(bias)
    return Lazy(shape, kind, lambda i: Call("add", (found.at(i), added.at([i[1]])), kind), computed=True)
