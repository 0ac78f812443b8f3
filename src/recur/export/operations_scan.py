"""The scan: a recurrent layer along the steps of a row; see operations.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, fx

from recur.errors import OptionError
from recur.export.lowered import Block, Each, Scan
from recur.export.lowered_values import ONE, Number, linear, number_of
from recur.export.lowering import KINDS, Lazy, Lowering, Value, counters
from recur.export.operations import operation
from recur.ops.cpu.programs import load_programs


@operation("scan.default")
def scan(
    low: Lowering, node: fx.Node, data: Value, weights: Sequence[Tensor], extras: Sequence[Tensor],
    state: Sequence[Value], mask: Value, xi: Value, sizes: Any, batch_major: bool, clip: float, cell: str,
    products: str, train: bool,
) -> list[Lazy]:  # fmt: skip
    """Recurrent layers: (rows, steps, D) to outputs (rows, steps, H) and final states (rows, H); rows are taken one
    after the other."""
    given, states = low.lazy(data), [low.lazy(part) for part in state]
    rows = number_of(given.shape[0])
    if rows is None:
        raise OptionError(f"the graph {low.graph.name} has a scan of rows whose number is open, which is not lowered")
    if rows == 1:
        return _scan(low, given, weights, extras, states, cell)
    each = [
        _scan(low, _row(low, given, r), weights, extras, [_row(low, part, r) for part in states], cell)
        for r in range(rows)
    ]
    return [_side_by_side(low, parts) for parts in zip(*each, strict=True)]


def _row(low: Lowering, lazy: Lazy, row: int) -> Lazy:
    return low.stored(Lazy((ONE, *lazy.shape[1:]), lazy.kind, lambda index: lazy.at([Number(row), *index[1:]])))


def _side_by_side(low: Lowering, parts: Sequence[Lazy]) -> Lazy:
    """Rows (1, …) as one buffer."""
    first = parts[0]
    shape = (Number(len(parts)), *first.shape[1:])
    buffer = low.new(shape, first.kind)
    for row, part in enumerate(parts):
        index = counters("i", part.shape)
        low.body.append(Each(buffer, part.shape, linear([Number(row), *index[1:]], shape), part.at(index)))
    return low.of_buffer(buffer)


def _scan(
    low: Lowering,
    given: Lazy,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Lazy],
    cell: str,
) -> list[Lazy]:
    """Of one row."""
    a = load_programs(cell).assembly
    named = dict(zip(a.weight_names(len(weights)), weights, strict=True))
    given = low.stored(given)
    assert given.buffer is not None
    U, H = named["weight_ih"], named["weight_ih"].shape[0] // a.gates
    kind = KINDS[U.dtype]

    def weight(name: str) -> Any:
        return low.weights.of(named[name], kind) if name in named else None

    blocks = []
    if a.products:
        W = named["weight_hh"]
        if a.heads == 1:
            blocks = [Block(low.weights.of(W, kind), 0, 0)]
        else:
            rows, columns = H // a.heads, W.shape[1]
            for k in range(a.products * a.heads):
                part = W[k * rows : (k + 1) * rows]
                blocks.append(Block(low.weights.of(part, kind), k * rows, k % a.heads * columns))
    P = named["weight_hr"].shape[0] if "weight_hr" in named else H
    steps = given.shape[1]
    widths = [P, *[H] * (a.states - 1)]
    outputs = [(j, low.new((ONE, steps, Number(widths[j])), kind)) for j in a.outputs]
    finals = [low.new((ONE, Number(width)), kind) for width in widths]
    start = []
    for begin in state:
        stored = low.stored(begin)
        assert stored.buffer is not None
        start.append(stored.buffer)
    low.body.append(
        Scan(
            a.use,
            steps,
            given.buffer,
            H,
            a.gates,
            a.products,
            weight("weight_ih"),
            tuple(blocks),
            weight("bias_ih"),
            weight("bias_hh"),
            weight("weight_hr"),
            tuple(low.weights.of(part, kind) for part in extras),
            tuple(start),
            tuple(outputs),
            tuple(finals),
        )
    )
    return [low.of_buffer(buffer) for buffer in (*(buffer for _, buffer in outputs), *finals)]
