"""Recognition of cells for which other runtimes have a layer: LSTM, GRU, RNN and peephole LSTM.

A cell is recognized by what its program computes, not by its name: a custom LSTM with its gates in another order is an
LSTM. The operator `recur::layer` stands for such a scan, or for the two scans of a bidirectional layer, until a target
replaces it by its own layer.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from recur.cells import GRU, LSTM, Cell, Elman
from recur.cells.peephole import PeepholeLSTM
from recur.compiler.assembly import Assembly, Code
from recur.compiler.expressions import Expressions
from recur.compiler.program_text import text_of
from recur.export.graphs import copy_program
from recur.ops.cpu.grid import LIBRARY

OperandT = TypeVar("OperandT")
Apply = Callable[..., OperandT]
"""apply(operation, *operands), for the operations of recur.compiler.expressions.OPERATIONS."""


def interpret(
    code: Code,
    given: Mapping[str, Sequence[OperandT]],
    number: Callable[[float], OperandT],
    apply: Apply[OperandT],
) -> list[OperandT]:
    """Run a cell's forward program on any type of operands; return the next states.

    given     operands by kind: share, product, before, extra
    number    makes a constant
    apply     applies an operation
    """
    places: dict[int, OperandT] = {}
    for p, (kind, k) in enumerate(code.places):
        if kind == "constant":
            places[p] = number(code.numbers[k])
        elif kind in given:
            places[p] = given[kind][k]
    for op, (to, *operands) in code.instructions:
        places[to] = _applied(op, [places[p] for p in operands], apply)
    after = {k: places[p] for p, (kind, k) in enumerate(code.places) if kind == "after"}
    return [after[k] for k in sorted(after)]


def _applied(op: str, values: list[OperandT], apply: Apply[OperandT]) -> OperandT:
    """Apply one instruction, which is two operations if it is fused (recur.compiler.writer.FUSED)."""
    match op, values:
        case "copy", [a]:
            return a
        case "sigmoid_sum" | "tanh_sum", [a, b]:
            return apply(op.removesuffix("_sum"), apply("add", a, b))
        case "multiply_add", [a, b, c]:
            return apply("add", apply("mul", a, b), c)
        case "multiply_sub", [a, b, c]:
            return apply("sub", apply("mul", a, b), c)
        case "sub_multiply", [a, b, c]:
            return apply("sub", c, apply("mul", a, b))
        case _:
            return apply(op, *values)


CELL_KINDS: dict[str, Cell] = {
    "lstm": LSTM(),
    "gru": GRU(),
    "rnn_tanh": Elman("tanh"),
    "rnn_relu": Elman("relu"),
    "rnn_sigmoid": Elman("sigmoid"),
    "peephole": PeepholeLSTM(),
}

LIBRARY.define(
    "layer(Tensor data, Tensor[] weights, Tensor[] extras, Tensor[] state, str kind, str direction) -> Tensor[]"
)
"""weights  U, W, and their biases if there are any, by the order of gates in KINDS; of the backward direction behind
state      h and c, (B, H) each; nothing: zero. Of the backward direction behind
direction  forward, reverse or bidirectional
Returns outputs (B, T, H), side by side where there are two, and the states in the order in which they are given."""


@functools.partial(torch.library.register_fake, "recur::layer", lib=LIBRARY)
def _shapes(
    data: Tensor, weights: list[Tensor], extras: list[Tensor], state: list[Tensor], kind: str, direction: str
) -> list[Tensor]:
    ways = 2 if direction == "bidirectional" else 1
    B, T, _ = data.shape
    H = weights[1].shape[1]
    return [data.new_empty(B, T, ways * H), *(data.new_empty(B, H) for _ in range(ways * len(CELL_KINDS[kind].states)))]


class RecognizedCell(NamedTuple):
    """Kind of a cell, and for each gate of CELL_KINDS the index of that gate in the cell."""

    kind: str
    gates: tuple[int, ...]
    products: tuple[int, ...]


@functools.lru_cache(maxsize=256)
def recognize_cell(text: str) -> RecognizedCell | None:
    """Return the kind of a cell's program and the order of its gates; None if it is none of CELL_KINDS."""
    a = Assembly.loads(text)
    for kind, cell in CELL_KINDS.items():
        b = Assembly.loads(text_of(cell, biased=True))
        like = ("gates", "products", "states", "extras", "heads", "outputs")
        if any(getattr(a, name) != getattr(b, name) for name in like):
            continue
        terms = Expressions()
        wanted = _states(b, terms, range(b.gates), range(b.products))
        orders = list(itertools.permutations(range(a.gates)))
        for gates, products in sorted(itertools.product(orders, orders), key=lambda pair: pair[0] != pair[1]):
            if _states(a, terms, _inverse(gates), _inverse(products)) == wanted:
                return RecognizedCell(kind, gates, products)
    return None


def _inverse(order: tuple[int, ...]) -> list[int]:
    return [order.index(k) for k in range(len(order))]


def _states(a: Assembly, terms: Expressions, gates: Any, products: Any) -> list[int]:
    """Return the next states as expressions, with the gates named as in CELL_KINDS."""
    given = {
        "share": [terms.leaf("x", k) for k in gates],
        "product": [terms.leaf("h", k) for k in products],
        "before": [terms.leaf("s", k) for k in range(a.states)],
        "extra": [terms.leaf("w", k) for k in range(a.extras)],
    }
    return interpret(a.use, given, terms.number, terms)


# The pass over a graph ------------------------------------------------------------------------------------------------

SCAN = torch.ops.recur.scan.default
LAYER = torch.ops.recur.layer.default
FLIP, CAT, SLICE = torch.ops.aten.flip.default, torch.ops.aten.cat.default, torch.ops.aten.slice.Tensor


class _RecognizedScan(NamedTuple):
    """Scan of a recognized cell in a graph."""

    node: fx.Node
    known: RecognizedCell
    data: fx.Node
    outputs: fx.Node | None
    """Node of the outputs in the order of the inputs; None if nothing reads them."""
    reverse: bool

    @property
    def states(self) -> list[tuple[int, fx.Node]]:
        """Readers of the final states, with the index of the state."""
        return [(int(user.args[1]) - 1, user) for user in self.node.users if user.args[1] != 0]  # type: ignore[arg-type]


def fuse_layers(program: ExportedProgram, kinds: Collection[str]) -> ExportedProgram:
    """Return a copy of a program in which scans of these kinds are `recur::layer`; two directions of one input become
    one layer."""
    program = copy_program(program)
    graph = program.graph
    while scans := _recognized_scans(graph, kinds):
        one = scans[0]
        other = next((scan for scan in scans if _are_two_directions(one, scan)), None)
        _replace(graph, sorted([one, *([] if other is None else [other])], key=lambda scan: scan.reverse))
        graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def _recognized_scans(graph: fx.Graph, kinds: Collection[str]) -> list[_RecognizedScan]:
    found = [_recognized_scan(node) for node in graph.nodes if node.target is SCAN]
    return [scan for scan in found if scan is not None and scan.known.kind in kinds]


def _recognized_scan(node: fx.Node) -> _RecognizedScan | None:
    data, weights, _, _, mask, _, _, batch_major = _arguments(node)[:8]
    cell = _arguments(node)[9]
    known = recognize_cell(cell)
    if known is None or mask is not None or not batch_major:
        return None
    if "weight_hr" in Assembly.loads(cell).weight_names(len(weights)):
        return None
    outputs = next((user for user in node.users if user.args[1] == 0), None)
    readers = [] if outputs is None else list(outputs.users)
    if _reverses_time(data) and all(map(_reverses_time, readers)) and len(readers) <= 1:
        return _RecognizedScan(node, known, data.args[0], readers[0] if readers else None, reverse=True)
    return _RecognizedScan(node, known, data, outputs, reverse=False)


def _arguments(node: fx.Node) -> Any:
    """Return the arguments of a node: nodes, lists of nodes and numbers, as in the operator's schema."""
    return node.args


def _reverses_time(node: fx.Node) -> bool:
    return node.target is FLIP and list(_arguments(node)[1]) == [1]


def _are_two_directions(one: _RecognizedScan, other: _RecognizedScan) -> bool:
    """Return True if two scans are the directions of one layer and nothing reads the first before the second exists."""
    ways = one.reverse != other.reverse and one.data is other.data and one.known == other.known
    given = [bool(_arguments(scan.node)[3]) for scan in (one, other)]
    early = [
        user for reader in one.node.users for user in reader.users if user is not one.outputs and user < other.node
    ]
    return ways and given[0] == given[1] and not early


def _replace(graph: fx.Graph, scans: list[_RecognizedScan]) -> None:
    """Insert one layer for a scan, or for the two scans of both directions."""
    last = max(scan.node for scan in scans)
    H = _arguments(last)[1][1].meta["val"].shape[1]
    kind = scans[0].known.kind
    with graph.inserting_after(last):
        here = graph.call_function(LAYER)  # its place: what it reads is written before it
    with graph.inserting_before(here):
        weights = [weight for scan in scans for weight in _ordered_weights(graph, scan, H)]
    extras, state = ([part for scan in scans for part in _arguments(scan.node)[k]] for k in (2, 3))
    direction = "bidirectional" if len(scans) == 2 else "reverse" if scans[0].reverse else "forward"
    here.args = (scans[0].data, weights, extras, state, kind, direction)
    with graph.inserting_after(here):
        outputs = graph.call_function(operator.getitem, (here, 0))
    _replace_outputs(graph, outputs, [scan.outputs for scan in scans], H)
    each = len(CELL_KINDS[kind].states)
    for way, scan in enumerate(scans):
        for k, user in scan.states:
            with graph.inserting_after(here):
                user.replace_all_uses_with(graph.call_function(operator.getitem, (here, 1 + way * each + k)))


def _replace_outputs(graph: fx.Graph, outputs: fx.Node, old: list[fx.Node | None], H: int) -> None:
    if len(old) == 1:
        if old[0] is not None:
            old[0].replace_all_uses_with(outputs)
        return
    for user in list(old[0].users if old[0] is not None else ()):
        if user.target is CAT and list(_arguments(user)[0]) == old and _arguments(user)[1:] in ((-1,), (2,)):
            user.replace_all_uses_with(outputs)  # side by side, as they are
    for way, part in enumerate(old):
        if part is not None:
            with graph.inserting_after(outputs):
                part.replace_all_uses_with(graph.call_function(SLICE, (outputs, 2, way * H, (way + 1) * H)))


def _ordered_weights(graph: fx.Graph, scan: _RecognizedScan, H: int) -> list[fx.Node]:
    """Return U, W and biases with their gates in the order of CELL_KINDS."""
    known, found = scan.known, []
    for k, weight in enumerate(_arguments(scan.node)[1]):
        order = known.products if k % 2 else known.gates
        if order != tuple(range(len(order))):
            gates = [graph.call_function(SLICE, (weight, 0, g * H, (g + 1) * H)) for g in order]
            weight = graph.call_function(CAT, (gates, 0))
        found.append(weight)
    return found
