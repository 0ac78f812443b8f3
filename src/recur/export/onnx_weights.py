"""An ONNX model's matrices in 8 bits, with a scale for each row of U, W or V.

A model keeps whole numbers and scales, and `DequantizeLinear` before what reads them; an embedding's rows are taken
first. What is computed is computed in float32, with the numbers that `quantise.dequantised` gives.
"""

from __future__ import annotations

import numpy as np
import torch
from onnxscript import ir
from torch import Tensor

from recur.export.quantise import is_eight_bit, quantise

RECURRENT = ("LSTM", "GRU", "RNN")


def in_eight_bits(model: ir.Model) -> None:
    """Of a model whose matrices are 8-bit numbers already, spelled out."""
    graph = model.graph
    for value in list(graph.initializers.values()):
        uses = list(value.uses())
        if not uses or value.dtype != ir.DataType.FLOAT or value.const_value is None:
            continue
        weight = torch.from_numpy(np.array(value.const_value.numpy()))
        if weight.dim() < 2:  # a row of numbers, which a MatMul can read too
            continue
        if all(use.node.op_type == "Gather" and use.idx == 0 for use in uses):
            if is_eight_bit(weight):
                _taken_first(graph, value, weight)
            continue
        axes = {_axis(use.node, use.idx) for use in uses}
        axis = axes.pop()
        if axes or axis is None:
            continue
        rows = weight.flatten(0, -2) if axis == -2 else weight.movedim(axis, 0)
        if rows.dim() == 2 and is_eight_bit(rows):
            _spelled_out(graph, value, rows, axis)


def _axis(node: ir.Node, which: int) -> int | None:
    """Along which axis a node's weight has its rows; −2: along the last but one, directions behind each other."""
    if node.op_type in RECURRENT and which in (1, 2):
        return -2
    if node.op_type == "MatMul" and which == 1:
        return 1
    if node.op_type == "Gemm" and which == 1:
        transposed = node.attributes.get("transB")
        return 0 if transposed is not None and transposed.as_int() else 1
    return None


def _spelled_out(graph: ir.Graph, value: ir.Value, rows: Tensor, axis: int) -> None:
    q, scale = quantise(rows)
    numbers = _constant(graph, f"{value.name}.int8", q)
    scales = _constant(graph, f"{value.name}.scale", scale)
    nodes = [ir.node("DequantizeLinear", [numbers, scales], attributes={"axis": 0})]
    if axis == 1:
        # Right before a MatMul, ONNX Runtime would round what the weights multiply to 8 bits too.
        nodes.append(ir.node("Transpose", nodes[0].outputs, attributes={"perm": [1, 0]}))
    elif axis == -2:
        shape = _constant(graph, f"{value.name}.shape", torch.tensor(list(value.shape or ()), dtype=torch.int64))
        nodes.append(ir.node("Reshape", [nodes[0].outputs[0], shape]))
    for node in nodes:
        node.outputs[0].dtype = ir.DataType.FLOAT
    graph.insert_before(graph[0], nodes)
    ir.convenience.replace_all_uses_with(value, nodes[-1].outputs[0])
    graph.initializers.pop(str(value.name))


def _taken_first(graph: ir.Graph, value: ir.Value, weight: Tensor) -> None:
    """Rows of a table, and then their numbers."""
    q, scale = quantise(weight)
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
