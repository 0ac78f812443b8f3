"""ONNX models: what a run's graphs are for ONNX Runtime and whatever else reads ONNX.

torch.onnx translates PyTorch's operations; a scan is ONNX's own LSTM, GRU or RNN where it is one (onnx_layers.py), else
its `Scan` over the cell's program (aten.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur import __version__
from recur.export import Options, Written
from recur.export.aten import decomposed, scanned
from recur.export.compare import Run, check, in_pytorch, largest_difference
from recur.export.graphs import Graph, Portable, quiet
from recur.export.known import LAYER, SCAN, with_layers
from recur.export.parts import metadata, named, needed, place, signature, wanted
from recur.files import write_atomically

TAKES = {"quantize"}


def write(portable: Portable, path: Path, options: Options) -> Written:
    needed("onnx", "onnxscript", "onnxruntime")
    graphs, positive = wanted(portable), bool(portable.settings.get("positive"))
    made: dict[Path, bytes] = {}
    operators = Counter[str]()
    difference = moved = 0.0
    for name, graph in graphs.items():
        where = place(path, name, graphs)
        if options.quantize:
            exact, graph = graph, graph.with_eight_bits()
            moved = max(moved, largest_difference(exact, in_pytorch(graph), positive))
        made[where], found = model_bytes(portable, graph, bool(options.quantize))
        operators += found
        difference = max(difference, check(largest_difference(graph, runtime(made[where]), positive), where.name))
    for where, content in made.items():
        write_atomically(where, content)
    layers = ", ".join(f"{count} {name}" for name, count in operators.items())
    notes = [*portable.notes]
    if options.quantize:
        notes.append(f"weights in 8 bits: outputs move by up to {moved:.2g} from those of float32")
    first = next(iter(graphs.values()))
    feed = ", ".join(f"{name!r}: …" for name in named(first)[0])
    return Written(
        tuple(made),
        sum(map(len, made.values())),
        difference,
        f"{'; '.join(map(signature, graphs.values()))}; opset {OPSET}{f', {layers}' if layers else ''}",
        f'onnxruntime.InferenceSession("{next(iter(made)).name}").run(None, {{{feed}}})',
        tuple(notes),
    )


OPSET = 20
"""Of the files that are written."""

RECURRENT = ("LSTM", "GRU", "RNN", "Scan")


def model_bytes(portable: Portable, graph: Graph, quantize: bool) -> tuple[bytes, Counter[str]]:
    """The file of one graph, and its recurrent operators."""
    import onnx
    from onnxscript import optimizer

    from recur.export import onnx_layers, onnx_names, onnx_weights

    program = decomposed(with_layers(graph.program, onnx_layers.KINDS), {SCAN: scanned})
    with torch.no_grad(), quiet("torch.onnx"):
        made: Any = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            optimize=False,
            opset_version=OPSET,
            custom_translation_table={LAYER: onnx_layers.layer},
        )
    model = made.model
    # Weights are turned and put in order once, here, however many there are.
    optimizer.optimize(model, input_size_limit=MANY, output_size_limit=MANY)
    if quantize:
        onnx_weights.in_eight_bits(model)
    onnx_names.rename(model, graph)
    model.metadata_props.clear()
    model.metadata_props.update(metadata(portable, graph))
    model.producer_name, model.producer_version, model.doc_string = "recur", __version__, None
    model.graph.name, model.graph.doc_string = graph.name, None
    model.graph.metadata_props.clear()
    proto = made.model_proto
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString(), Counter(node.op_type for node in model.graph if node.op_type in RECURRENT)


MANY = 1 << 40
"""Bytes: no weight has more."""


def runtime(content: bytes) -> Run:
    """The model in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def run(given: Sequence[Tensor]) -> list[Tensor]:
        found = session.run(None, {name: part.numpy() for name, part in zip(names, given, strict=True)})
        return [torch.from_numpy(np.asarray(part)) for part in found]

    return run
