"""Export to ONNX.

torch.onnx translates PyTorch's operations. A recognized cell becomes ONNX's LSTM, GRU or RNN; any other becomes ONNX's
`Scan` over the cell's program (torch_export.py).

    LSTM  gates i o f g, peepholes i o f      GRU  z r n, linear_before_reset      RNN  tanh, ReLU or σ

ONNX stores the weights of the directions one after the other, and sequences as (T, B, ·).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnxscript
import torch
from onnxscript import ir, optimizer
from torch import Tensor

from recur import __version__
from recur.export import ExportOptions, ExportResult
from recur.export.artifacts import (
    GraphRunner,
    check_difference,
    graph_path,
    graphs_to_write,
    keep_files,
    largest_difference,
    metadata,
    run_in_pytorch,
    signature,
    value_names,
)
from recur.export.graphs import Graph, PortableModel, is_quantized, quantize_rows, silence_torch
from recur.export.torch_export import LAYER, SCAN, decompose, fuse_layers, scan_with_torch


def rename_values(model: ir.Model, graph: Graph) -> None:
    """Name every value and node: inputs and outputs by the graph, all others by a number of fixed length, so that no
    name is a prefix of another."""
    inputs, outputs = value_names(graph)
    outside = {*model.graph.inputs, *model.graph.outputs}
    for value, name, of in zip(
        [*model.graph.inputs, *model.graph.outputs], [*inputs, *outputs], [*graph.inputs, *graph.outputs], strict=True
    ):
        value.name, value.shape = name, ir.Shape(list(of.shape))
        _clear_metadata(value)
    values = [value for value in _values(model.graph) if value not in outside]
    nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
    digits = len(str(len(values) + len(nodes)))
    things: list[ir.Value | ir.Node] = [*values, *nodes]
    for k, thing in enumerate(things):
        thing.name = f"{k:0{digits}d}.{_readable_name(thing)}"
        _clear_metadata(thing)
        if isinstance(thing, ir.Value) and not thing.is_initializer():
            thing.shape = None  # in symbols internal to torch.export
    for value in values:
        _clear_metadata(value)


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    """Yield all values of a graph and its subgraphs except the inputs."""
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
        for inside in _graphs(node):
            yield from inside.inputs
            yield from _values(inside)


def _graphs(node: ir.Node) -> list[ir.Graph]:
    return [attribute.as_graph() for attribute in node.attributes.values() if attribute.type == ir.AttributeType.GRAPH]


def _readable_name(thing: ir.Value | ir.Node) -> str:
    """Return a name for readers: the operator, the parameter, or the input that a reordered weight belongs to."""
    if isinstance(thing, ir.Node):
        return thing.op_type
    name = thing.name or ""
    use = next(iter(thing.uses()), None)
    if thing.is_initializer() and "." not in name and use is not None:
        inputs = RECURRENT_INPUTS if use.node.op_type in LAYER_OPERATORS else ()
        return f"{use.node.op_type}.{inputs[use.idx] if use.idx < len(inputs) else use.idx}"
    return name.removeprefix("module.").removeprefix("model.")


RECURRENT_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
"""ONNX's names of the inputs of its recurrent operators."""


def _clear_metadata(thing: Any) -> None:
    """Remove what PyTorch recorded, which includes file paths."""
    thing.metadata_props.clear()
    thing.doc_string = None


LAYER_OPERATORS = ("LSTM", "GRU", "RNN")


def quantize_weights(model: ir.Model) -> None:
    """Store the matrices of a model in 8 bits with one scale per row. The weights must already be rounded to 8 bits.

    The file holds integers and scales, with `DequantizeLinear` before the reader; rows of an embedding are gathered
    first. All arithmetic stays float32, with the numbers of `graphs.dequantize`.
    """
    graph = model.graph
    for value in list(graph.initializers.values()):
        uses = list(value.uses())
        if not uses or value.dtype != ir.DataType.FLOAT or value.const_value is None:
            continue
        weight = torch.from_numpy(np.array(value.const_value.numpy()))
        if weight.dim() < 2:  # a MatMul can read a vector too
            continue
        if all(use.node.op_type == "Gather" and use.idx == 0 for use in uses):
            if is_quantized(weight):
                _gather_then_dequantize(graph, value, weight)
            continue
        axes = {_row_axis(use.node, use.idx) for use in uses}
        axis = axes.pop()
        if axes or axis is None:
            continue
        rows = weight.flatten(0, -2) if axis == -2 else weight.movedim(axis, 0)
        if rows.dim() == 2 and is_quantized(rows):
            _dequantize_before_use(graph, value, rows, axis)


def _row_axis(node: ir.Node, which: int) -> int | None:
    """Return the axis of a weight's rows; −2: the last but one, with the directions stacked; None: not quantized."""
    if node.op_type in LAYER_OPERATORS and which in (1, 2):
        return -2
    if node.op_type == "MatMul" and which == 1:
        return 1
    if node.op_type == "Gemm" and which == 1:
        transposed = node.attributes.get("transB")
        return 0 if transposed is not None and transposed.as_int() else 1
    return None


def _dequantize_before_use(graph: ir.Graph, value: ir.Value, rows: Tensor, axis: int) -> None:
    q, scale = quantize_rows(rows)
    numbers = _constant(graph, f"{value.name}.int8", q)
    scales = _constant(graph, f"{value.name}.scale", scale)
    nodes = [ir.node("DequantizeLinear", [numbers, scales], attributes={"axis": 0})]
    if axis == 1:
        # Directly before a MatMul, ONNX Runtime would also quantize the other operand to 8 bits.
        nodes.append(ir.node("Transpose", nodes[0].outputs, attributes={"perm": [1, 0]}))
    elif axis == -2:
        shape = _constant(graph, f"{value.name}.shape", torch.tensor(list(value.shape or ()), dtype=torch.int64))
        nodes.append(ir.node("Reshape", [nodes[0].outputs[0], shape]))
    for node in nodes:
        node.outputs[0].dtype = ir.DataType.FLOAT
    graph.insert_before(graph[0], nodes)
    ir.convenience.replace_all_uses_with(value, nodes[-1].outputs[0])
    graph.initializers.pop(str(value.name))


def _gather_then_dequantize(graph: ir.Graph, value: ir.Value, weight: Tensor) -> None:
    """Gather the rows of a table and dequantize only those."""
    q, scale = quantize_rows(weight)
    numbers = _constant(graph, f"{value.name}.int8", q)
    scales = _constant(graph, f"{value.name}.scale", scale[:, None].contiguous())
    for node in [use.node for use in value.uses()]:
        indices, place = node.inputs[1], node.graph
        assert place is not None
        rows = ir.node("Gather", [numbers, indices])
        cast = ir.node("Cast", [rows.outputs[0]], attributes={"to": ir.DataType.FLOAT})
        each = ir.node("Gather", [scales, indices])
        product = ir.node("Mul", [cast.outputs[0], each.outputs[0]])
        place.insert_before(node, [rows, cast, each, product])
        ir.convenience.replace_all_uses_with(node.outputs[0], product.outputs[0], replace_graph_outputs=True)
        place.remove(node, safe=True)
    graph.initializers.pop(str(value.name))


def _constant(graph: ir.Graph, name: str, tensor: Tensor) -> ir.Value:
    value = ir.Value(name=name, const_value=ir.tensor(tensor.numpy(), name=name))
    value.shape, value.dtype = ir.Shape(list(tensor.shape)), value.const_value.dtype  # type: ignore[union-attr]
    graph.register_initializer(value)
    return value


op: Any = onnxscript.opset20

ONNX_LAYERS: dict[str, tuple[str, list[int], dict[str, Any]]] = {
    "lstm": ("LSTM", [0, 3, 1, 2], {}),
    "peephole": ("LSTM", [0, 3, 1, 2], {}),
    "gru": ("GRU", [1, 0, 2], {"linear_before_reset": 1}),
    "rnn_tanh": ("RNN", [0], {}),
    "rnn_relu": ("RNN", [0], {"activations": "Relu"}),
    "rnn_sigmoid": ("RNN", [0], {"activations": "Sigmoid"}),
}
"""Operator, order of our gates in it, and its attributes."""

PEEPHOLES = [0, 2, 1]
"""Order of our peepholes i, f, o in ONNX."""


def onnx_layer(
    data: Any, weights: Sequence[Any], extras: Sequence[Any], state: Sequence[Any], kind: str, direction: str
) -> Any:
    """Return the nodes of one layer, in one or both directions; arguments and results as those of `recur::layer`."""
    name, order, told = ONNX_LAYERS[kind]
    ways, H = (2 if direction == "bidirectional" else 1), weights[1].shape[1]
    each, own = len(weights) // ways, len(extras) // ways
    U, W = (
        _stack_directions([_reorder_gates(weights[way * each + k], order, H) for way in range(ways)]) for k in (0, 1)
    )
    b = P = None
    if each == 4:
        both = [[_reorder_gates(weights[way * each + k], order, H) for k in (2, 3)] for way in range(ways)]
        b = _stack_directions([op.Concat(*pair, axis=0) for pair in both])
    if own:
        P = _stack_directions([op.Concat(*(extras[way * own + k] for k in PEEPHOLES), axis=0) for way in range(ways)])
    count = 2 if name == "LSTM" else 1
    start = [_stack_directions(list(state[k::count])) if state else None for k in range(count)]
    options = {"hidden_size": int(H), "direction": direction, **told}
    if "activations" in told:
        options["activations"] = [told["activations"]] * ways
    x = op.Transpose(data, perm=[1, 0, 2])
    given = [x, U, W, b, None, *start, P] if P is not None else [x, U, W, b, None, *start]
    Y, *finals = getattr(op, name)(*given, **options)
    if ways == 1:
        outputs = op.Transpose(op.Squeeze(Y, [1]), perm=[1, 0, 2])
    else:
        outputs = op.Reshape(op.Transpose(Y, perm=[2, 0, 1, 3]), [0, 0, ways * int(H)])
    last = [
        op.Squeeze(final, [0]) if ways == 1 else op.Gather(final, way, axis=0)
        for way in range(ways)
        for final in finals
    ]
    return [outputs, *last]


def _stack_directions(parts: Sequence[Any]) -> Any:
    """Stack the weights of the directions."""
    each = [op.Unsqueeze(part, [0]) for part in parts]
    return each[0] if len(each) == 1 else op.Concat(*each, axis=0)


def _reorder_gates(weight: Any, order: Sequence[int], H: int) -> Any:
    if len(order) == 1:
        return weight
    return op.Concat(*(op.Slice(weight, [g * H], [(g + 1) * H], [0]) for g in order), axis=0)


def write(portable: PortableModel, path: Path, options: ExportOptions) -> ExportResult:
    graphs, positive = graphs_to_write(portable), bool(portable.settings.get("positive"))
    made: dict[Path, bytes] = {}
    operators = Counter[str]()
    difference = moved = 0.0
    for name, graph in graphs.items():
        where = graph_path(path, name, graphs)
        if options.quantize:
            exact, graph = graph, graph.with_eight_bits()
            moved = max(moved, largest_difference(exact, run_in_pytorch(graph), positive))
        made[where], found = model_bytes(portable, graph, bool(options.quantize))
        operators += found
        difference = max(
            difference,
            check_difference(largest_difference(graph, run_in_onnxruntime(made[where]), positive), where.name),
        )
    keep_files(made)
    layers = ", ".join(f"{count} {name}" for name, count in operators.items())
    notes = [*portable.notes]
    if options.quantize:
        notes.append(f"8-bit weights change outputs by up to {moved:.2g} compared with float32")
    first = next(iter(graphs.values()))
    feed = ", ".join(f"{name!r}: …" for name in value_names(first)[0])
    return ExportResult(
        tuple(made),
        sum(map(len, made.values())),
        difference,
        f"{'; '.join(map(signature, graphs.values()))}; opset {OPSET}{f', {layers}' if layers else ''}",
        f'onnxruntime.InferenceSession("{next(iter(made)).name}").run(None, {{{feed}}})',
        tuple(notes),
    )


OPSET = 20
"""ONNX opset of the files."""


def model_bytes(portable: PortableModel, graph: Graph, quantize: bool) -> tuple[bytes, Counter[str]]:
    """Return the file of one graph and the number of each recurrent operator."""
    program = decompose(fuse_layers(graph.program, ONNX_LAYERS), {SCAN: scan_with_torch})
    with torch.no_grad(), silence_torch("torch.onnx"):
        made: Any = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            optimize=False,
            opset_version=OPSET,
            custom_translation_table={LAYER: onnx_layer},
        )
    model = made.model
    # Constant folding transposes and reorders the weights once, at export.
    optimizer.optimize(model, input_size_limit=NO_SIZE_LIMIT, output_size_limit=NO_SIZE_LIMIT)
    if quantize:
        quantize_weights(model)
    rename_values(model, graph)
    model.metadata_props.clear()
    model.metadata_props.update(metadata(portable, graph))
    model.producer_name, model.producer_version, model.doc_string = "recur", __version__, None
    model.graph.name, model.graph.doc_string = graph.name, None
    model.graph.metadata_props.clear()
    proto = made.model_proto
    onnx.checker.check_model(proto, full_check=True)
    operators = Counter(node.op_type for node in model.graph if node.op_type in (*LAYER_OPERATORS, "Scan"))
    return proto.SerializeToString(), operators


NO_SIZE_LIMIT = 1 << 40
"""Bytes, more than any weight: the optimizer folds constants of every size."""


def run_in_onnxruntime(content: bytes) -> GraphRunner:
    """Return the model as a runner in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def run(given: Sequence[Tensor]) -> list[Tensor]:
        found = session.run(None, {name: part.numpy() for name, part in zip(names, given, strict=True)})
        return [torch.from_numpy(np.asarray(part)) for part in found]

    return run
