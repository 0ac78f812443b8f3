"""ONNX models: what a run's graphs are for ONNX Runtime and whatever else reads ONNX.

torch.onnx translates PyTorch's operations; a scan is ONNX's own LSTM, GRU or RNN where it is one (onnx_layers.py), else
its `Scan` over the cell's program (aten.py). A model with several graphs is several files: `model.onnx` is the pass over
whole sequences, `model.step.onnx` and others stand beside it.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import json
import logging
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur import __version__
from recur.errors import OptionError
from recur.export import Options, Written
from recur.export.aten import decomposed, scanned
from recur.export.compare import check, largest_difference
from recur.export.graphs import Graph, Portable
from recur.export.known import LAYER, SCAN, with_layers
from recur.export.quantise import dequantised
from recur.files import write_atomically

TAKES = {"quantize"}


def write(portable: Portable, path: Path, options: Options) -> Written:
    needed("onnx", "onnxruntime", "onnxscript")
    graphs = wanted(portable)
    if options.quantize:
        graphs = {name: with_eight_bits(graph) for name, graph in graphs.items()}
    made: dict[Path, bytes] = {}
    difference = 0.0
    for name, graph in graphs.items():
        where = place(path, name, graphs)
        content = model_bytes(portable, graph, options.quantize)
        positive = bool(portable.settings.get("positive"))
        difference = max(difference, check(largest_difference(graph, runtime(content), positive), where.name))
        made[where] = content
    for where, content in made.items():
        write_atomically(where, content)
    return Written(sum(map(len, made.values())), difference, portable.notes)


def needed(*modules: str) -> None:
    """Refuse, if what this needs is not installed."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            raise OptionError(f"this needs {module}, which is not installed: pip install 'recur[export]'") from None


def wanted(portable: Portable) -> dict[str, Graph]:
    """The graphs that a file is made of; a step is none of them where the pass over sequences has its state too."""
    whole = portable.graphs.get("sequence")
    return {name: graph for name, graph in portable.graphs.items() if name != "step" or not (whole and whole.carried)}


def place(path: Path, name: str, graphs: Collection[str]) -> Path:
    """Where one of several graphs is written."""
    return path if len(graphs) == 1 or name == "sequence" else path.with_suffix(f".{name}{path.suffix}")


def with_eight_bits(graph: Graph) -> Graph:
    """The same with the numbers that 8-bit weights stand for."""
    program = copy.deepcopy(graph.program)
    for name, weight in program.state_dict.items():
        program.state_dict[name] = torch.nn.Parameter(dequantised(weight), False) if isinstance(weight, torch.nn.Parameter) else weight
    return dataclasses.replace(graph, program=program)


def model_bytes(portable: Portable, graph: Graph, quantize: bool) -> bytes:
    import onnx
    from onnxscript import optimizer

    from recur.export import onnx_layers, onnx_names, onnx_weights

    program = decomposed(with_layers(graph.program, onnx_layers.KINDS), {SCAN: scanned})
    with _quiet():
        made: Any = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            optimize=False,
            opset_version=onnx_layers.OPSET,
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
    content: bytes = proto.SerializeToString()
    return content


MANY = 1 << 40
"""Bytes: no weight has more."""


@contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch speaks of packages that have nothing to do with this."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def metadata(portable: Portable, graph: Graph) -> dict[str, str]:
    """What a model says of itself: JSON, but for plain words."""
    start = {name: portable.start[name] for name in graph.carried if name in portable.start}
    found = {
        **portable.metadata,
        "graph": graph.name,
        "carried": json.dumps({name: f"next_{name}" for name in graph.carried}),
        "start": json.dumps({name: _numbers(part) for name, part in start.items()}),
        "settings": json.dumps(portable.settings),
        "labels": json.dumps(portable.labels, ensure_ascii=False),
    }
    found |= {f"vocabulary.{name}": vocab.to_json() for name, vocab in portable.vocabs.items()}
    return found | {f"table.{name}": json.dumps(table.tolist()) for name, table in portable.tables.items()}


def _numbers(part: Tensor) -> Any:
    """One number, where all are the same."""
    values = part.flatten().tolist()
    same = values and all(value == values[0] for value in values)
    return _spelled(values[0]) if same else [_spelled(value) for value in values]


def _spelled(value: float) -> float | str:
    """JSON has no infinity."""
    return value if math.isfinite(value) else str(value)


def runtime(content: bytes) -> Callable[[Sequence[Tensor]], list[Tensor]]:
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
