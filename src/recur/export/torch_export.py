"""Export to PyTorch: programs of torch.export and state dicts of torch.nn.

    torch.export.load("model.pt2").module()             loads without recur
    torch.nn.LSTM(…).load_state_dict(load_file(path))   all other weights are in `model.rest.safetensors`

A recognized cell (LSTM, GRU, RNN, peephole LSTM) becomes PyTorch's own layer. A cell is recognized by what its program
computes, not by its name: a custom LSTM with its gates in another order is an LSTM. The operator `recur::layer` stands
for such a scan, or for the two scans of a bidirectional layer, until a target replaces it by its own layer. Any other
cell becomes its program inside PyTorch's `scan`, which torch.onnx translates as well.

The metadata is stored in the archive, one text per key. That of a state dict also holds the arguments of torch.nn's
layer, under `about`.
"""

from __future__ import annotations

import functools
import io
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops.scan import scan_op
from torch.export import ExportedProgram
from torch.nn.functional import linear

from recur.cells import GRU, LSTM, Cell, Elman
from recur.cells.peephole import PeepholeLSTM
from recur.compiler.assembly import Assembly, Code
from recur.compiler.expressions import OPERATIONS, Expressions
from recur.compiler.programs import text_of
from recur.errors import OptionError
from recur.export import ExportOptions, ExportResult
from recur.export.artifacts import (
    TEST_SHAPES,
    GraphRunner,
    check_difference,
    graph_path,
    graphs_to_write,
    keep_files,
    largest_difference,
    metadata,
    relative_difference,
    signature,
)
from recur.export.graphs import PortableModel, copy_program, silence_torch
from recur.nn import Connections, Depth, Recurrent
from recur.ops.cpu.grid import LIBRARY
from recur.runs.weights import to_bytes

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
def _layer_shapes(
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


LAYERS = {
    "lstm": torch.ops.aten.lstm.input,
    "gru": torch.ops.aten.gru.input,
    "rnn_tanh": torch.ops.aten.rnn_tanh.input,
    "rnn_relu": torch.ops.aten.rnn_relu.input,
}
"""PyTorch's recurrent layers by kind of cell."""

PLACEHOLDERS = {kind: f"aten_{kind}" for kind in LAYERS}
"""Operators that stand for PyTorch's layers until a program is finished. When PyTorch traces its own layer it unrolls
every step, for one length only."""

for _kind, _layer in LAYERS.items():
    LIBRARY.define(f"{PLACEHOLDERS[_kind]}{str(_layer._schema).removeprefix(_layer._schema.name + '.input')}")


def _shapes(data: Tensor, hidden: Any, weights: Sequence[Tensor], *options: Any) -> tuple[Tensor, ...]:
    hidden = hidden if isinstance(hidden, list | tuple) else [hidden]
    ways, B, H = hidden[0].shape
    return data.new_empty(B, data.shape[1], ways * H), *(part.new_empty(ways, B, H) for part in hidden)


for _name in PLACEHOLDERS.values():
    torch.library.register_fake(f"recur::{_name}", _shapes, lib=LIBRARY)


KEPT_METADATA = ("val", "tensor_meta")
"""Metadata of a node that is kept; source file names and lines are removed."""


def replace_recur_operators(program: ExportedProgram) -> ExportedProgram:
    """Return the program in PyTorch's own operations."""
    program = decompose(fuse_layers(program, LAYERS), {SCAN: scan_with_torch, LAYER: layer_with_torch})
    own = {getattr(torch.ops.recur, name).default: LAYERS[kind] for kind, name in PLACEHOLDERS.items()}
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.target = own.get(node.target, node.target)
                node.meta = {name: value for name, value in node.meta.items() if name in KEPT_METADATA}
            module.recompile()
    return program


def decompose(program: ExportedProgram, table: dict[Any, Callable[..., Any]]) -> ExportedProgram:
    """Return the program with these operators, and no others, replaced by these functions."""
    with torch.no_grad(), silence_torch("torch.export"):
        found: ExportedProgram = program.run_decompositions(table)
    return found


def scan_with_torch(
    data: Tensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Tensor],
    mask: Tensor | None,
    xi: Tensor | None,
    sizes: Sequence[int],
    batch_major: bool,
    clip: float,
    cell: str,
    products: str,
    train: bool,
) -> list[Tensor]:
    """Implement `recur::scan` on whole rows by PyTorch's `scan` over the cell's program."""
    assert batch_major, "expected batch-major data"
    assert mask is None, "expected no mask"
    a = Assembly.loads(cell)
    named = dict(zip(a.weight_names(len(weights)), weights, strict=True))
    H, rows = weights[0].shape[0] // a.gates, data.shape[0]
    if not state:
        first = named["weight_hr"].shape[0] if "weight_hr" in named else H
        state = [data.new_zeros(rows, width) for width in (first, *[H] * (a.states - 1))]
    shares = linear(data, named["weight_ih"], named.get("bias_ih")).transpose(0, 1)
    inside: list[str] = [name for name in ("weight_hh", "bias_hh", "weight_hr") if name in named]

    def step(*given: Tensor) -> list[Tensor]:
        before, share, rest = given[: a.states], given[a.states], given[a.states + 1 :]
        own = dict(zip(inside, rest, strict=False))
        product = _product(before[0], a, own)
        places = {
            "share": share.split(H, dim=-1),
            "product": () if product is None else product.split(H, dim=-1),
            "before": before,
            "extra": rest[len(inside) :],
        }
        after = interpret(a.use, places, lambda value: share.new_full((), value), lambda op, *v: OPERATIONS[op](*v))
        after = [part.expand_as(share[:, :H]) for part in after]
        if "weight_hr" in own:
            after[0] = linear(after[0], own["weight_hr"])
        # torch.scan forbids outputs that alias inputs or each other.
        return [part.clone() for part in (*after, *(after[k] for k in a.outputs))]

    found = scan_op(step, list(state), [shares], (*(named[name] for name in inside), *extras))
    return [*(part.transpose(0, 1) for part in found[a.states :]), *found[: a.states]]


def _product(h: Tensor, a: Assembly, own: dict[str, Tensor]) -> Tensor | None:
    """Return W h + b_h of all gates."""
    if not a.products:
        return None
    W, b_h = own["weight_hh"], own.get("bias_hh")
    if a.heads == 1:
        return linear(h, W, b_h)
    blocks = W.unflatten(0, (a.products, a.heads, -1))
    product = torch.einsum("bnk,rnuk->brnu", h.unflatten(-1, (a.heads, -1)), blocks).flatten(1)
    return product if b_h is None else product + b_h


def layer_with_torch(
    data: Tensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Tensor],
    kind: str,
    direction: str,
) -> list[Tensor]:
    """Implement `recur::layer` by PyTorch's layer."""
    both, H, states = direction == "bidirectional", weights[1].shape[1], len(CELL_KINDS[kind].states)
    ways = 2 if both else 1
    if not state:
        state = [data.new_zeros(data.shape[0], H) for _ in range(ways * states)]
    hidden = [torch.stack(list(state[k::states])) for k in range(states)]  # (ways, B, H)
    biased = len(weights) == 4 * ways
    reverse = direction == "reverse"
    given = data.flip(1) if reverse else data
    options = (list(weights), biased, 1, 0.0, False, both, True)
    layer = getattr(torch.ops.recur, PLACEHOLDERS[kind])
    outputs, *finals = layer(given, hidden if states > 1 else hidden[0], *options)
    return [outputs.flip(1) if reverse else outputs, *(final[way] for way in range(ways) for final in finals)]


def write_programs(portable: PortableModel, path: Path, options: ExportOptions) -> ExportResult:
    graphs, positive = graphs_to_write(portable), bool(portable.settings.get("positive"))
    made: dict[Path, bytes] = {}
    difference = 0.0
    for name, graph in graphs.items():
        where = graph_path(path, name, graphs)
        made[where] = program_bytes(replace_recur_operators(graph.program), metadata(portable, graph))
        difference = max(
            difference, check_difference(largest_difference(graph, run_program(made[where]), positive), where.name)
        )
    keep_files(made)
    return ExportResult(
        tuple(made),
        sum(map(len, made.values())),
        difference,
        "; ".join(map(signature, graphs.values())),
        f'torch.export.load("{next(iter(made)).name}").module()(…), one tensor per input',
        portable.notes,
    )


def program_bytes(program: ExportedProgram, said: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with silence_torch("torch._export"):
        torch.export.save(program, out, extra_files=said)
    return out.getvalue()


def run_program(content: bytes) -> GraphRunner:
    """Load a program from its bytes and return it as a runner."""
    with silence_torch("torch._export"):
        module = torch.export.load(io.BytesIO(content)).module()
    return lambda given: module(*given)


TORCH_MODULES: dict[str, tuple[type[nn.RNNBase], dict[str, str]]] = {
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
    "rnn_tanh": (nn.RNN, {"nonlinearity": "tanh"}),
    "rnn_relu": (nn.RNN, {"nonlinearity": "relu"}),
}


def write_weights(portable: PortableModel, path: Path, options: ExportOptions) -> ExportResult:
    network = portable.network
    if network is None:
        raise OptionError(f"a model of the task {portable.task} is not a single recurrent network; {OTHER_TARGETS}")
    known = check_torch_layer(network)
    weights = torch_state_dict(network, known)
    layer, told = TORCH_MODULES[known.kind]
    given: dict[str, Any] = {
        "input_size": network.input_size, "hidden_size": network.units(0), "num_layers": network.num_layers,
        "bias": network.bias, "batch_first": True, "bidirectional": network.direction == "both", **told,
    }  # fmt: skip
    if network.projection:
        given["proj_size"] = network.projection
    made = layer(**given)
    made.load_state_dict(weights)
    difference = check_difference(_difference(network, made), path.name)
    graph = next(iter(portable.graphs.values()))
    about = {"layer": layer.__name__, "options": given, **metadata(portable, graph)}
    whole = {
        name.removeprefix("module.").removeprefix("model."): part for name, part in graph.program.state_dict.items()
    }
    rest = {name: part.detach().clone() for name, part in whole.items() if not name.startswith("recurrent.")}
    files = {path: to_bytes(weights, about)}
    if rest:
        files[path.with_suffix(f".rest{path.suffix}")] = to_bytes(rest, about)
    keep_files(files)
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return ExportResult(
        tuple(files),
        sum(map(len, files.values())),
        difference,
        f"{', '.join(sorted(weights))}" + (f"; other weights: {', '.join(sorted(rest))}" if rest else ""),
        f'torch.nn.{layer.__name__}({words}).load_state_dict(safetensors.torch.load_file("{path.name}"))',
        portable.notes,
    )


OTHER_TARGETS = "--to torch and --to onnx export the whole model"


def check_torch_layer(network: Recurrent) -> RecognizedCell:
    """Refuse a network that no layer of torch.nn computes; return its cell."""
    known = recognize_cell(text_of(network.cell, network.bias))
    name = network.cell.name or type(network.cell).__name__
    if known is None or known.kind not in TORCH_MODULES or (network.projection and known.kind != "lstm"):
        projected = " with a projection" if network.projection else ""
        raise OptionError(f"torch.nn has no {name}{projected}: expected LSTM, GRU or RNN; {OTHER_TARGETS}")
    if network.direction == "backward":
        raise OptionError(f"torch.nn has no backward-only network; {OTHER_TARGETS}")
    if network.units(0) != network.units(network.num_layers - 1):
        raise OptionError(
            f"torch.nn has one hidden size for all layers, and the last layer of this network differs; {OTHER_TARGETS}"
        )
    if network.connections != Connections() or network.depth != Depth():
        raise OptionError(f"torch.nn has no residual connections, skip connections, merges or MLPs; {OTHER_TARGETS}")
    return known


def torch_state_dict(network: Recurrent, known: RecognizedCell) -> dict[str, Tensor]:
    """Return the weights with torch.nn's names and order of gates."""
    found: dict[str, Tensor] = {}
    for suffix in network.suffixes():
        for name, weight in network.weights(suffix).items():
            order = {"ih": known.gates, "hh": known.products}.get(name.rpartition("_")[2])
            if order is not None:
                weight = torch.cat([weight.chunk(len(order))[gate] for gate in order])
            found[name + suffix] = weight.detach().clone()
    return found


def _difference(network: Recurrent, layer: nn.RNNBase) -> float:
    """Return the largest difference from torch.nn's layer at four shapes, from a nonzero state."""
    largest = 0.0
    draw = torch.Generator().manual_seed(0)
    names, widths = network.cell.states, network.widths_of(0)
    for sizes in TEST_SHAPES:
        B, T = sizes["B"], sizes["T"]
        x = torch.randn(B, T, network.input_size, generator=draw)
        start = [tuple(torch.randn(B, width, generator=draw) for width in widths) for _ in network.suffixes()]
        by_state = [torch.stack([part[k] for part in start]) for k in range(len(names))]
        with torch.no_grad():
            ours, state, _ = network(x, start)
            theirs, last = layer(x, tuple(by_state) if len(names) > 1 else by_state[0])
        finals = last if isinstance(last, tuple) else (last,)
        largest = max(largest, relative_difference(ours, theirs))
        for k, final in enumerate(finals):
            largest = max(largest, relative_difference(torch.stack([part[k] for part in state]), final))
    return largest
