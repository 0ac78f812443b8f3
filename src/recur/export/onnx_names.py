"""What an ONNX model calls things: no name is the beginning of another, and none says where it was made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onnxscript import ir

from recur.export.graphs import Graph, Value
from recur.export.parts import named


def rename(model: ir.Model, graph: Graph) -> None:
    """Give everything in a model its name: inputs and outputs theirs, all else a number first, as long as any other."""
    inputs, outputs = named(graph)
    outside = {*model.graph.inputs, *model.graph.outputs}
    for value, name, of in zip(
        [*model.graph.inputs, *model.graph.outputs], [*inputs, *outputs], [*graph.inputs, *graph.outputs], strict=True
    ):
        value.name, value.shape = name, _shape(of)
        _forget(value)
    values = [value for value in _values(model.graph) if value not in outside]
    nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
    digits = len(str(len(values) + len(nodes)))
    things: list[ir.Value | ir.Node] = [*values, *nodes]
    for k, thing in enumerate(things):
        thing.name = f"{k:0{digits}d}.{_what(thing)}"
        _forget(thing)
        if isinstance(thing, ir.Value) and not thing.is_initializer():
            thing.shape = None  # in symbols that nobody else knows
    for value in values:
        _forget(value)


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    """All that is not computed by whoever calls, those of graphs inside included."""
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
        for inside in _graphs(node):
            yield from inside.inputs
            yield from _values(inside)


def _graphs(node: ir.Node) -> list[ir.Graph]:
    return [attribute.as_graph() for attribute in node.attributes.values() if attribute.type == ir.AttributeType.GRAPH]


def _what(thing: ir.Value | ir.Node) -> str:
    """A word for a reader: the operator, the parameter, or what a weight that was put in order is for."""
    if isinstance(thing, ir.Node):
        return thing.op_type
    name = thing.name or ""
    use = next(iter(thing.uses()), None)
    if thing.is_initializer() and "." not in name and use is not None:
        inputs = RECURRENT if use.node.op_type in ("LSTM", "GRU", "RNN") else ()
        return f"{use.node.op_type}.{inputs[use.idx] if use.idx < len(inputs) else use.idx}"
    return name.removeprefix("module.").removeprefix("model.")


RECURRENT = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
"""What ONNX calls the inputs of its recurrent operators."""


def _shape(value: Value) -> ir.Shape:
    return ir.Shape(list(value.shape))


def _forget(thing: Any) -> None:
    """What PyTorch noted of it, paths of files among that."""
    thing.metadata_props.clear()
    thing.doc_string = None
