"""Operations that are lowered beside the pointwise ones: indexing, reductions, matrix products, convolution and the
scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, fx

from recur.errors import OptionError
from recur.export.loop_ir import (
    ONE,
    Call,
    Constant,
    CumulativeSum,
    ElementLoop,
    Expr,
    MatMul,
    ReduceLoop,
    ScanLoop,
    SortRows,
    WeightBlock,
    add,
    constant_value,
    flat_index,
    mul,
    sub,
)
from recur.export.lowering import (
    NUMBER_KINDS,
    OPERATIONS,
    Index,
    LazyTensor,
    Lowering,
    NodeValue,
    broadcast,
    cast,
    dim_of,
    in_range,
    loop_counters,
    operation,
    pointwise,
)
from recur.ops.cpu.library import load_programs


def _reindex(low: Lowering, node: fx.Node, x: NodeValue, index_of: Callable[[Index], Index]) -> LazyTensor:
    """Return a tensor that reads x at another index."""
    lazy = low.lazy(x)
    return LazyTensor(low.shape(node), lazy.kind, lambda index: lazy.at(index_of(index)), computed=lazy.computed)


@operation("permute.default")
def permute(low: Lowering, node: fx.Node, x: NodeValue, dims: Sequence[int]) -> LazyTensor:
    back = {d % len(dims): k for k, d in enumerate(dims)}
    return _reindex(low, node, x, lambda index: [index[back[k]] for k in range(len(dims))])


@operation("expand.default")
def expand(low: Lowering, node: fx.Node, x: NodeValue, sizes: Any, **_: Any) -> LazyTensor:
    shape, lazy = low.shape(node), low.lazy(x)
    if lazy.shape == shape:
        return lazy
    read = broadcast(low, lazy, shape)
    return LazyTensor(shape, lazy.kind, read)


@operation("unsqueeze.default")
def unsqueeze(low: Lowering, node: fx.Node, x: NodeValue, dim: int) -> LazyTensor:
    lazy = low.lazy(x)
    if lazy.buffer is not None:
        return low.of_buffer(lazy.buffer, low.shape(node))
    at = dim % (len(lazy.shape) + 1)
    return _reindex(low, node, lazy, lambda index: [*index[:at], *index[at + 1 :]])


@operation("squeeze.dims", "squeeze.dim")
def squeeze(low: Lowering, node: fx.Node, x: NodeValue, dims: Any) -> LazyTensor:
    lazy = low.lazy(x)
    if lazy.buffer is not None:
        return low.of_buffer(lazy.buffer, low.shape(node))
    some = {dim_of(lazy, d) for d in ([dims] if isinstance(dims, int) else dims)}
    gone = {d for d in some if constant_value(lazy.shape[d]) == 1}
    if len(low.shape(node)) == len(lazy.shape):  # where B is open, a dimension that is 1 here may not be one there
        return lazy

    def back(index: Index) -> Index:
        left = iter(index)
        return [Constant(0) if d in gone else next(left) for d in range(len(lazy.shape))]

    return _reindex(low, node, lazy, back)


@operation("view.default", "reshape.default", "_unsafe_view.default")
def view(low: Lowering, node: fx.Node, x: NodeValue, sizes: Any) -> LazyTensor:
    """Reshape. A buffer needs no code; a change of dimensions of size 1 becomes an index; any other tensor is stored
    first."""
    lazy, shape = low.lazy(x), low.shape(node)
    if lazy.buffer is None:
        real = [k for k, size in enumerate(lazy.shape) if constant_value(size) != 1]
        new = [k for k, size in enumerate(shape) if constant_value(size) != 1]
        if [lazy.shape[k] for k in real] == [shape[k] for k in new]:
            places = dict(zip(real, new, strict=True))

            def back(index: Index) -> Index:
                return [index[places[k]] if k in places else Constant(0) for k in range(len(lazy.shape))]

            return _reindex(low, node, lazy, back)
    return low.of_buffer(low.buffer(lazy), shape)


@operation("slice.Tensor")
def slice_(
    low: Lowering, node: fx.Node, x: NodeValue, dim: int = 0, start: NodeValue = 0, end: NodeValue = None, step: int = 1
) -> LazyTensor:
    lazy = low.lazy(x)
    at = dim_of(lazy, dim)
    first = low.size(0 if start is None else start)
    n = constant_value(first)
    if n is not None and n < 0:
        first = add(lazy.shape[at], n)
    if low.shape(node) == lazy.shape and step == 1:
        return lazy
    return _reindex(low, node, lazy, lambda index: [*index[:at], add(first, mul(index[at], step)), *index[at + 1 :]])


@operation("select.int")
def select(low: Lowering, node: fx.Node, x: NodeValue, dim: int, index: NodeValue) -> LazyTensor:
    lazy = low.lazy(x)
    at, place = dim_of(lazy, dim), low.size(index)
    n = constant_value(place)
    if n is not None and n < 0:
        place = add(lazy.shape[at], n)
    if lazy.buffer is not None and constant_value(lazy.shape[at]) == 1:
        return low.of_buffer(lazy.buffer, low.shape(node))
    return _reindex(low, node, lazy, lambda index: [*index[:at], place, *index[at:]])


@operation("split_with_sizes.default")
def split(low: Lowering, node: fx.Node, x: NodeValue, sizes: Sequence[NodeValue], dim: int = 0) -> list[LazyTensor]:
    lazy = low.cheap(x)
    at, begin, found = dim_of(lazy, dim), low.size(0), []
    for size in map(low.size, sizes):
        shape = (*lazy.shape[:at], size, *lazy.shape[at + 1 :])

        def part(index: Index, begin: Expr = begin) -> Expr:
            return lazy.at([*index[:at], add(begin, index[at]), *index[at + 1 :]])

        found.append(LazyTensor(shape, lazy.kind, part))
        begin = add(begin, size)
    return found


@operation("flip.default")
def flip(low: Lowering, node: fx.Node, x: NodeValue, dims: Sequence[int]) -> LazyTensor:
    lazy = low.lazy(x)
    turned = {dim_of(lazy, d) for d in dims}

    def back(index: Index) -> Index:
        return [sub(add(lazy.shape[k], -1), i) if k in turned else i for k, i in enumerate(index)]

    return _reindex(low, node, lazy, back)


@operation("unfold.default")
def unfold(low: Lowering, node: fx.Node, x: NodeValue, dim: int, size: int, step: int) -> LazyTensor:
    lazy = low.cheap(x)
    at = dim_of(lazy, dim)

    def back(index: Index) -> Index:
        return [*index[:at], add(mul(index[at], step), index[-1]), *index[at + 1 : -1]]

    return _reindex(low, node, lazy, back)


@operation("cat.default")
def cat(low: Lowering, node: fx.Node, tensors: Sequence[NodeValue], dim: int = 0) -> LazyTensor:
    """Copy the parts into one buffer."""
    shape, kind = low.shape(node), low.kind(node)
    lazies = [low.lazy(one) for one in tensors]
    lazies = [lazy for lazy in lazies if all(constant_value(size) != 0 for size in lazy.shape)]
    if len(lazies) == 1:
        return lazies[0]
    at, begin, buffer = dim % len(shape), low.size(0), low.new(shape, kind)
    for lazy in lazies:
        index = loop_counters("i", lazy.shape)
        to = [*index[:at], add(begin, index[at]), *index[at + 1 :]]
        low.body.append(ElementLoop(buffer, lazy.shape, flat_index(to, shape), cast(lazy.at(index), kind)))
        begin = add(begin, lazy.shape[at])
    return low.of_buffer(buffer)


@operation("constant_pad_nd.default")
def pad(low: Lowering, node: fx.Node, x: NodeValue, amounts: Sequence[int], value: float = 0) -> LazyTensor:
    lazy, shape, kind = low.cheap(x), low.shape(node), low.kind(node)
    before = {len(shape) - 1 - k // 2: amount for k, amount in enumerate(amounts) if k % 2 == 0}

    def at(index: Index) -> Expr:
        back = [sub(i, before.get(k, 0)) for k, i in enumerate(index)]
        found = lazy.at(back)
        for k, size in enumerate(lazy.shape):
            if shape[k] != size:
                found = Call("select", (in_range(back[k], size), found, cast(Constant(value), kind)), kind)
        return found

    return LazyTensor(shape, kind, at)


@operation("embedding.default")
def embedding(low: Lowering, node: fx.Node, weight: NodeValue, ids: NodeValue, *_: Any) -> LazyTensor:
    table, lazy = low.cheap(weight), low.cheap(ids)
    return LazyTensor(low.shape(node), table.kind, lambda index: table.at([lazy.at(index[:-1]), index[-1]]))


@operation("gather.default")
def gather(low: Lowering, node: fx.Node, x: NodeValue, dim: int, places: NodeValue, **_: Any) -> LazyTensor:
    lazy, where_ = low.cheap(x), low.cheap(places)
    at = dim_of(lazy, dim)
    return _reindex(low, node, lazy, lambda index: [*index[:at], where_.at(index), *index[at + 1 :]])


@operation("index.Tensor")
def index_(low: Lowering, node: fx.Node, x: NodeValue, places: Sequence[NodeValue]) -> LazyTensor:
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

    return LazyTensor(low.shape(node), lazy.kind, at)


def _at_tail(lazy: LazyTensor, index: Index) -> Expr:
    tail = index[len(index) - len(lazy.shape) :]
    return lazy.at([Constant(0) if constant_value(size) == 1 else i for i, size in zip(tail, lazy.shape, strict=True)])


def _dims(lazy: LazyTensor, dims: Any) -> list[int]:
    if dims is None or dims == []:
        return list(range(len(lazy.shape)))
    some = [dims] if isinstance(dims, int) else dims
    return [dim_of(lazy, d) for d in some]


def _reduction(op: str) -> Callable[..., LazyTensor]:
    def made(low: Lowering, node: fx.Node, x: NodeValue, dims: Any = None, keep: bool = False, **_: Any) -> LazyTensor:
        lazy = low.lazy(x)
        kind = low.kind(node)
        if lazy.kind != kind and op != "argmax":
            inner = lazy
            lazy = LazyTensor(inner.shape, kind, lambda index: cast(inner.at(index), kind), computed=inner.computed)
        found = low.reduce(op, lazy, _dims(lazy, dims), kind)
        return found if keep else low.of_buffer(low.buffer(found), low.shape(node))

    return made


for _name, _op in {"sum.dim_IntList": "sum", "amax.default": "max", "amin.default": "min"}.items():
    OPERATIONS[_name] = _reduction(_op)
OPERATIONS["argmax.default"] = _reduction("argmax")


@operation("mean.dim")
def mean(low: Lowering, node: fx.Node, x: NodeValue, dims: Any, keep: bool = False, **_: Any) -> LazyTensor:
    lazy, kind = low.lazy(x), low.kind(node)
    count: Expr = ONE
    for d in _dims(lazy, dims):
        count = mul(count, lazy.shape[d])
    total = _reduction("sum")(low, node, lazy, dims, keep)
    return LazyTensor(
        total.shape, kind, lambda index: Call("div", (total.at(index), cast(count, kind)), kind), computed=True
    )


@operation("_softmax.default")
def softmax(low: Lowering, node: fx.Node, x: NodeValue, dim: int, half: bool) -> LazyTensor:
    found, total, _ = _exponentials(low, low.cheap(x), dim)
    kind = found.kind
    return LazyTensor(
        found.shape, kind, lambda index: Call("div", (found.at(index), total(index)), kind), computed=True
    )


@operation("_log_softmax.default")
def log_softmax(low: Lowering, node: fx.Node, x: NodeValue, dim: int, half: bool) -> LazyTensor:
    lazy = low.cheap(x)
    kind = lazy.kind
    _, total, most = _exponentials(low, lazy, dim)

    def at(index: Index) -> Expr:
        return Call("sub", (Call("sub", (lazy.at(index), most(index)), kind), Call("log", (total(index),), kind)), kind)

    return LazyTensor(lazy.shape, kind, at, computed=True)


def _exponentials(
    low: Lowering, lazy: LazyTensor, dim: int
) -> tuple[LazyTensor, Callable[[Index], Expr], Callable[[Index], Expr]]:
    """Return exp(x − max x), their sum and the maximum along a dimension."""
    at, kind = dim_of(lazy, dim), lazy.kind

    def along(reduced: LazyTensor) -> Callable[[Index], Expr]:
        return lambda index: reduced.at([Constant(0) if k == at else i for k, i in enumerate(index)])

    most = along(low.reduce("max", lazy, [at]))
    powers = low.stored(
        LazyTensor(
            lazy.shape, kind, lambda index: Call("exp", (Call("sub", (lazy.at(index), most(index)), kind),), kind)
        )
    )
    return powers, along(low.reduce("sum", powers, [at])), most


@operation("cumsum.default")
def cumsum(low: Lowering, node: fx.Node, x: NodeValue, dim: int, **_: Any) -> LazyTensor:
    lazy = low.lazy(x)
    at, shape = dim_of(lazy, dim), lazy.shape
    buffer, index = low.new(shape, lazy.kind), loop_counters("i", [*shape[:at], *shape[at + 1 :]])
    whole = [*index[:at], *loop_counters("j", [shape[at]]), *index[at:]]
    kept = (*shape[:at], *shape[at + 1 :])
    low.body.append(CumulativeSum(buffer, kept, shape[at], flat_index(whole, shape), lazy.at(whole)))
    return low.of_buffer(buffer)


@operation("sort.default")
def sort(low: Lowering, node: fx.Node, x: NodeValue, dim: int = -1, descending: bool = False) -> list[LazyTensor]:
    lazy = low.lazy(x)
    shape = lazy.shape
    buffer, index, rows = low.new(shape, lazy.kind), loop_counters("i", shape), low.size(1)
    for size in shape[:-1]:
        rows = mul(rows, size)
    low.body.append(ElementLoop(buffer, shape, flat_index(index, shape), lazy.at(index)))
    width = constant_value(shape[-1])
    assert width is not None
    assert not descending
    low.body.append(SortRows(buffer, rows, width))
    return [low.of_buffer(buffer)]


@operation("scatter_add.default")
def scatter_add(
    low: Lowering, node: fx.Node, x: NodeValue, dim: int, places: NodeValue, source: NodeValue
) -> LazyTensor:
    lazy, where_, added = low.lazy(x), low.cheap(places), low.lazy(source)
    at, buffer = dim_of(lazy, dim), low.new(lazy.shape, lazy.kind)
    index = loop_counters("i", lazy.shape)
    low.body.append(ElementLoop(buffer, lazy.shape, flat_index(index, lazy.shape), lazy.at(index)))
    index = loop_counters("i", added.shape)
    to = [*index[:at], where_.at(index), *index[at + 1 :]]
    low.body.append(ElementLoop(buffer, added.shape, flat_index(to, lazy.shape), added.at(index), adds=True))
    return low.of_buffer(buffer)


# Products ---------------------------------------------------------------------------------------------------------


@operation("mm.default")
def mm(low: Lowering, node: fx.Node, x: NodeValue, weight: NodeValue) -> LazyTensor:
    return _matmul(low, low.shape(node), x, weight, None)


@operation("addmm.default")
def addmm(low: Lowering, node: fx.Node, bias: NodeValue, x: NodeValue, weight: NodeValue) -> LazyTensor:
    if isinstance(bias, Tensor) and bias.dim() == 1:
        return _matmul(low, low.shape(node), x, weight, bias)
    return pointwise("add")(low, node, bias, _matmul(low, low.shape(node), x, weight, None))


def _matmul(low: Lowering, shape: tuple[Expr, ...], x: NodeValue, weight: NodeValue, bias: Tensor | None) -> LazyTensor:
    if not isinstance(weight, Tensor):
        assert bias is None
        return _dynamic_matmul(low, shape, low.cheap(x), low.cheap(weight))
    given = low.buffer(low.lazy(x))
    buffer, matrix = low.new(shape, given.kind), low.weights.of(weight.t(), given.kind)
    added = None if bias is None else low.weights.of(bias, given.kind)
    low.body.append(MatMul(buffer, given, matrix, added, shape[0]))
    return low.of_buffer(buffer)


@operation("bmm.default")
def bmm(low: Lowering, node: fx.Node, a: NodeValue, b: NodeValue) -> LazyTensor:
    if isinstance(b, Tensor) and b.shape[0] == 1:
        lazy = low.lazy(a)
        rows = low.of_buffer(low.buffer(lazy), lazy.shape[1:])
        found = _matmul(low, low.shape(node)[1:], rows, b[0], None)
        return low.of_buffer(low.buffer(found), low.shape(node))
    return _dynamic_matmul(low, low.shape(node), low.cheap(a), low.cheap(b))


def _dynamic_matmul(low: Lowering, shape: tuple[Expr, ...], a: LazyTensor, b: LazyTensor) -> LazyTensor:
    """Multiply (…, M, D) by (…, D, N), neither of them constant."""
    kind = a.kind
    buffer, index, over = low.new(shape, kind), loop_counters("i", shape), (a.shape[-1],)
    (d,) = loop_counters("j", over)
    value = Call("mul", (a.at([*index[:-1], d]), b.at([*index[:-2], d, index[-1]])), kind)
    low.body.append(ReduceLoop("sum", buffer, shape, over, flat_index(index, shape), value))
    return low.of_buffer(buffer)


@operation("convolution.default")
def convolution(
    low: Lowering,
    node: fx.Node,
    x: NodeValue,
    weight: NodeValue,
    bias: NodeValue,
    stride: Any,
    padding: Any,
    *more: Any,
) -> LazyTensor:
    """Convolve in one dimension: (1, C, L) by (O, C, K)."""
    lazy, kernel, shape, kind = low.cheap(x), low.lazy(weight), low.shape(node), low.kind(node)
    step, before = stride[0], padding[0]
    buffer, index = low.new(shape, kind), loop_counters("i", shape)
    over = (kernel.shape[1], kernel.shape[2])
    c, k = loop_counters("j", over)
    place = add(mul(index[2], step), k, -before)
    value = Call("mul", (lazy.at([index[0], c, place]), kernel.at([index[1], c, k])), kind)
    if before:
        value = Call("select", (in_range(place, lazy.shape[2]), value, cast(Constant(0), kind)), kind)
    low.body.append(ReduceLoop("sum", buffer, shape, over, flat_index(index, shape), value))
    found = low.of_buffer(buffer)
    if bias is None:
        return found
    added = low.lazy(bias)
    return LazyTensor(shape, kind, lambda i: Call("add", (found.at(i), added.at([i[1]])), kind), computed=True)


@operation("scan.default")
def scan(
    low: Lowering, node: fx.Node, data: NodeValue, weights: Sequence[Tensor], extras: Sequence[Tensor],
    state: Sequence[NodeValue], mask: NodeValue, xi: NodeValue, sizes: Any, batch_major: bool, clip: float, cell: str,
    products: str, train: bool,
) -> list[LazyTensor]:  # fmt: skip
    """Lower recurrent layers: (rows, steps, D) to outputs (rows, steps, H) and final states (rows, H), row by row."""
    given, states = low.lazy(data), [low.lazy(part) for part in state]
    rows = constant_value(given.shape[0])
    if rows is None:
        raise OptionError(f"the graph {low.graph.name} has a scan of rows whose number is open, which is not lowered")
    if rows == 1:
        return _scan_row(low, given, weights, extras, states, cell)
    each = [
        _scan_row(low, _take_row(low, given, r), weights, extras, [_take_row(low, part, r) for part in states], cell)
        for r in range(rows)
    ]
    return [_stack_rows(low, parts) for parts in zip(*each, strict=True)]


def _take_row(low: Lowering, lazy: LazyTensor, row: int) -> LazyTensor:
    return low.stored(LazyTensor((ONE, *lazy.shape[1:]), lazy.kind, lambda index: lazy.at([Constant(row), *index[1:]])))


def _stack_rows(low: Lowering, parts: Sequence[LazyTensor]) -> LazyTensor:
    """Return rows (1, …) as one buffer."""
    first = parts[0]
    shape = (Constant(len(parts)), *first.shape[1:])
    buffer = low.new(shape, first.kind)
    for row, part in enumerate(parts):
        index = loop_counters("i", part.shape)
        low.body.append(ElementLoop(buffer, part.shape, flat_index([Constant(row), *index[1:]], shape), part.at(index)))
    return low.of_buffer(buffer)


def _scan_row(
    low: Lowering,
    given: LazyTensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[LazyTensor],
    cell: str,
) -> list[LazyTensor]:
    """Lower the scan of one row."""
    a = load_programs(cell).assembly
    named = dict(zip(a.weight_names(len(weights)), weights, strict=True))
    read = low.buffer(given)
    U, H = named["weight_ih"], named["weight_ih"].shape[0] // a.gates
    kind = NUMBER_KINDS[U.dtype]

    def weight(name: str) -> Any:
        return low.weights.of(named[name], kind) if name in named else None

    blocks = []
    if a.products:
        W = named["weight_hh"]
        if a.heads == 1:
            blocks = [WeightBlock(low.weights.of(W, kind), 0, 0)]
        else:
            rows, columns = H // a.heads, W.shape[1]
            for k in range(a.products * a.heads):
                part = W[k * rows : (k + 1) * rows]
                blocks.append(WeightBlock(low.weights.of(part, kind), k * rows, k % a.heads * columns))
    P = named["weight_hr"].shape[0] if "weight_hr" in named else H
    steps = given.shape[1]
    widths = [P, *[H] * (a.states - 1)]
    outputs = [(j, low.new((ONE, steps, Constant(widths[j])), kind)) for j in a.outputs]
    finals = [low.new((ONE, Constant(width)), kind) for width in widths]
    start = tuple(map(low.buffer, state))
    low.body.append(
        ScanLoop(
            a.use,
            steps,
            read,
            H,
            a.gates,
            a.products,
            weight("weight_ih"),
            tuple(blocks),
            weight("bias_ih"),
            weight("bias_hh"),
            weight("weight_hr"),
            tuple(low.weights.of(part, kind) for part in extras),
            start,
            tuple(outputs),
            tuple(finals),
        )
    )
    return [low.of_buffer(buffer) for buffer in (*(buffer for _, buffer in outputs), *finals)]
