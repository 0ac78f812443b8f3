"""Operations that say where numbers stand: slices, shapes, tables; see operations.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from recur.export.lowered import Each
from recur.export.lowered_values import Call, Expr, Number, add, linear, mul, number_of, sub
from recur.export.lowering import Index, Lazy, Lowering, Value, counters
from recur.export.operations import broadcast, cast, dim_of, inside, operation


def _moved(low: Lowering, node: fx.Node, x: Value, index_of: Callable[[Index], Index]) -> Lazy:
    """What reads x at another index."""
    lazy = low.lazy(x)
    return Lazy(low.shape(node), lazy.kind, lambda index: lazy.at(index_of(index)), computed=lazy.computed)


@operation("permute.default")
def permute(low: Lowering, node: fx.Node, x: Value, dims: Sequence[int]) -> Lazy:
    back = {d % len(dims): k for k, d in enumerate(dims)}
    return _moved(low, node, x, lambda index: [index[back[k]] for k in range(len(dims))])


@operation("expand.default")
def expand(low: Lowering, node: fx.Node, x: Value, sizes: Any, **_: Any) -> Lazy:
    shape, lazy = low.shape(node), low.lazy(x)
    if lazy.shape == shape:
        return lazy
    read = broadcast(low, lazy, shape)
    return Lazy(shape, lazy.kind, read)


@operation("unsqueeze.default")
def unsqueeze(low: Lowering, node: fx.Node, x: Value, dim: int) -> Lazy:
    lazy = low.lazy(x)
    if lazy.buffer is not None:
        return low.of_buffer(lazy.buffer, low.shape(node))
    at = dim % (len(lazy.shape) + 1)
    return _moved(low, node, lazy, lambda index: [*index[:at], *index[at + 1 :]])


@operation("squeeze.dims", "squeeze.dim")
def squeeze(low: Lowering, node: fx.Node, x: Value, dims: Any) -> Lazy:
    lazy = low.lazy(x)
    if lazy.buffer is not None:
        return low.of_buffer(lazy.buffer, low.shape(node))
    some = {dim_of(lazy, d) for d in ([dims] if isinstance(dims, int) else dims)}
    gone = {d for d in some if number_of(lazy.shape[d]) == 1}
    if len(low.shape(node)) == len(lazy.shape):  # where B is open, a dimension that is 1 here may not be one there
        return lazy

    def back(index: Index) -> Index:
        left = iter(index)
        return [Number(0) if d in gone else next(left) for d in range(len(lazy.shape))]

    return _moved(low, node, lazy, back)


@operation("view.default", "reshape.default", "_unsafe_view.default")
def view(low: Lowering, node: fx.Node, x: Value, sizes: Any) -> Lazy:
    """Free of a buffer; else, where only dimensions of 1 come and go, an index; and what is left is stored first."""
    lazy, shape = low.lazy(x), low.shape(node)
    if lazy.buffer is None:
        real = [k for k, size in enumerate(lazy.shape) if number_of(size) != 1]
        new = [k for k, size in enumerate(shape) if number_of(size) != 1]
        if [lazy.shape[k] for k in real] == [shape[k] for k in new]:
            places = dict(zip(real, new, strict=True))

            def back(index: Index) -> Index:
                return [index[places[k]] if k in places else Number(0) for k in range(len(lazy.shape))]

            return _moved(low, node, lazy, back)
        lazy = low.stored(lazy)
    assert lazy.buffer is not None
    return low.of_buffer(lazy.buffer, shape)


@operation("slice.Tensor")
def slice_(
    low: Lowering, node: fx.Node, x: Value, dim: int = 0, start: Value = 0, end: Value = None, step: int = 1
) -> Lazy:
    lazy = low.lazy(x)
    at = dim_of(lazy, dim)
    first = low.size(0 if start is None else start)
    n = number_of(first)
    if n is not None and n < 0:
        first = add(lazy.shape[at], n)
    if low.shape(node) == lazy.shape and step == 1:
        return lazy
    return _moved(low, node, lazy, lambda index: [*index[:at], add(first, mul(index[at], step)), *index[at + 1 :]])


@operation("select.int")
def select(low: Lowering, node: fx.Node, x: Value, dim: int, index: Value) -> Lazy:
    lazy = low.lazy(x)
    at, place = dim_of(lazy, dim), low.size(index)
    n = number_of(place)
    if n is not None and n < 0:
        place = add(lazy.shape[at], n)
    if lazy.buffer is not None and number_of(lazy.shape[at]) == 1:
        return low.of_buffer(lazy.buffer, low.shape(node))
    return _moved(low, node, lazy, lambda index: [*index[:at], place, *index[at:]])


@operation("split_with_sizes.default")
def split(low: Lowering, node: fx.Node, x: Value, sizes: Sequence[Value], dim: int = 0) -> list[Lazy]:
    lazy = low.cheap(x)
    at, begin, found = dim_of(lazy, dim), low.size(0), []
    for size in map(low.size, sizes):
        shape = (*lazy.shape[:at], size, *lazy.shape[at + 1 :])

        def part(index: Index, begin: Expr = begin) -> Expr:
            return lazy.at([*index[:at], add(begin, index[at]), *index[at + 1 :]])

        found.append(Lazy(shape, lazy.kind, part))
        begin = add(begin, size)
    return found


@operation("flip.default")
def flip(low: Lowering, node: fx.Node, x: Value, dims: Sequence[int]) -> Lazy:
    lazy = low.lazy(x)
    turned = {dim_of(lazy, d) for d in dims}

    def back(index: Index) -> Index:
        return [sub(add(lazy.shape[k], -1), i) if k in turned else i for k, i in enumerate(index)]

    return _moved(low, node, lazy, back)


@operation("unfold.default")
def unfold(low: Lowering, node: fx.Node, x: Value, dim: int, size: int, step: int) -> Lazy:
    lazy = low.cheap(x)
    at = dim_of(lazy, dim)

    def back(index: Index) -> Index:
        return [*index[:at], add(mul(index[at], step), index[-1]), *index[at + 1 : -1]]

    return _moved(low, node, lazy, back)


@operation("cat.default")
def cat(low: Lowering, node: fx.Node, tensors: Sequence[Value], dim: int = 0) -> Lazy:
    """Part by part into one buffer."""
    shape, kind = low.shape(node), low.kind(node)
    lazies = [low.lazy(one) for one in tensors]
    lazies = [lazy for lazy in lazies if all(number_of(size) != 0 for size in lazy.shape)]
    if len(lazies) == 1:
        return lazies[0]
    at, begin, buffer = dim % len(shape), low.size(0), low.new(shape, kind)
    for lazy in lazies:
        index = counters("i", lazy.shape)
        to = [*index[:at], add(begin, index[at]), *index[at + 1 :]]
        low.body.append(Each(buffer, lazy.shape, linear(to, shape), cast(lazy.at(index), kind)))
        begin = add(begin, lazy.shape[at])
    return low.of_buffer(buffer)


@operation("constant_pad_nd.default")
def pad(low: Lowering, node: fx.Node, x: Value, amounts: Sequence[int], value: float = 0) -> Lazy:
    lazy, shape, kind = low.cheap(x), low.shape(node), low.kind(node)
    before = {len(shape) - 1 - k // 2: amount for k, amount in enumerate(amounts) if k % 2 == 0}

    def at(index: Index) -> Expr:
        back = [sub(i, before.get(k, 0)) for k, i in enumerate(index)]
        found = lazy.at(back)
        for k, size in enumerate(lazy.shape):
            if shape[k] != size:
                found = Call("select", (inside(back[k], size), found, cast(Number(value), kind)), kind)
        return found

    return Lazy(shape, kind, at)


@operation("embedding.default")
def embedding(low: Lowering, node: fx.Node, weight: Value, ids: Value, *_: Any) -> Lazy:
    table, lazy = low.cheap(weight), low.cheap(ids)
    return Lazy(low.shape(node), table.kind, lambda index: table.at([lazy.at(index[:-1]), index[-1]]))


@operation("gather.default")
def gather(low: Lowering, node: fx.Node, x: Value, dim: int, places: Value, **_: Any) -> Lazy:
    lazy, where_ = low.cheap(x), low.cheap(places)
    at = dim_of(lazy, dim)
    return _moved(low, node, lazy, lambda index: [*index[:at], where_.at(index), *index[at + 1 :]])


@operation("index.Tensor")
def index_(low: Lowering, node: fx.Node, x: Value, places: Sequence[Value]) -> Lazy:
    lazy = low.cheap(x)
    given = [(k, low.cheap(one)) for k, one in enumerate(places) if one is not None]
    first, rank = given[0][0], max(len(one.shape) for _, one in given)
    if [k for k, _ in given] != list(range(first, first + len(given))):
        first = 0
    which = {k for k, _ in given}

    def at(index: Index) -> Expr:
        inner, outer = index[first : first + rank], iter([*index[:first], *index[first + rank :]])
        found = []
        for k in range(len(lazy.shape)):
            found.append(_at_tail(dict(given)[k], inner) if k in which else next(outer))
        return lazy.at(found)

    return Lazy(low.shape(node), lazy.kind, at)


def _at_tail(lazy: Lazy, index: Index) -> Expr:
    tail = index[len(index) - len(lazy.shape) :]
    return lazy.at([Number(0) if number_of(size) == 1 else i for i, size in zip(tail, lazy.shape, strict=True)])
