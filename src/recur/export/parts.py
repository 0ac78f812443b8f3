"""A model with several graphs as several files, and what each says of itself.

`model.onnx` is the pass over whole sequences, or the only graph there is; `model.step.onnx`, `model.encode.onnx` and
others stand beside it.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from torch import Tensor

from recur.errors import OptionError
from recur.export.graphs import Graph, Portable
from recur.typedefs import JsonObject


def needed(*modules: str) -> None:
    """Refuse, if what a target needs is not installed."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            raise OptionError(f"this needs {module}, which is not installed: pip install 'recur[export]'") from None


def wanted(portable: Portable) -> dict[str, Graph]:
    """The graphs that are written; a step is none of them where the pass over sequences has its state too."""
    whole = portable.graphs.get("sequence")
    return {name: graph for name, graph in portable.graphs.items() if name != "step" or not (whole and whole.carried)}


def place(path: Path, name: str, graphs: Collection[str]) -> Path:
    """Where one of several graphs is written."""
    return path if len(graphs) == 1 or name == "sequence" else path.with_suffix(f".{name}{path.suffix}")


def named(graph: Graph) -> tuple[list[str], list[str]]:
    """What a file calls a graph's inputs and outputs: what is carried goes in as `h_0` and comes out as `next_h_0`; no
    name is the beginning of another."""
    inputs = [value.name for value in graph.inputs]
    outputs = [f"next_{value.name}" if value.name in graph.carried else value.name for value in graph.outputs]
    found = [*inputs, *outputs]
    for k, name in enumerate(found):
        while any(other.startswith(name) for j, other in enumerate(found) if j != k):
            name += "_"
        found[k] = name
    return found[: len(inputs)], found[len(inputs) :]


def signature(graph: Graph) -> str:
    """step(token, h_0) → logits, next_h_0"""
    inputs, outputs = named(graph)
    return f"{graph.name}({', '.join(inputs)}) → {', '.join(outputs)}"


def metadata(portable: Portable, graph: Graph) -> dict[str, str]:
    """What a file says of itself, as JSON but for plain words: `vocabulary` and `labels`; which inputs of the next call
    `carried` outputs are, and what is given at the `start`; horizons, seasons and marks in `settings`; what one of T
    is, in `step`."""
    inputs, outputs = named(graph)
    own = dict(zip([value.name for value in graph.inputs], inputs, strict=True))
    into = dict(zip([value.name for value in graph.outputs], outputs, strict=True))
    found = {
        **portable.metadata,
        "run": Path(portable.name).name,
        "graph": graph.name,
        "inputs": _json(dict(zip(inputs, (value.shape for value in graph.inputs), strict=True))),
        "outputs": _json(dict(zip(outputs, (value.shape for value in graph.outputs), strict=True))),
        "settings": _json(portable.settings),
        "step": _json(_step(portable)),
    }
    if graph.carried:
        start = {own[name]: _numbers(portable.start[name]) for name in graph.carried if name in portable.start}
        found |= {"carried": _json({into[name]: own[name] for name in graph.carried}), "start": _json(start)}
    if portable.labels:
        found["labels"] = _json(portable.labels)
    for name, vocab in portable.vocabs.items():
        found["vocabulary" if name == "vocab" else f"vocabulary.{name}"] = vocab.to_json()
    return found | {f"table.{name}": _json(table.tolist()) for name, table in portable.tables.items()}


def _step(portable: Portable) -> JsonObject:
    """How many of what one step reads: a character, word or subword; rows of numbers, several if they are stacked."""
    vocab = portable.vocabs.get(str(portable.settings.get("target", "vocab")))
    if vocab is not None:
        return {"size": 1, "of": vocab.tokenizer.kind}
    return {"size": portable.settings.get("stack", 1), "of": "row"}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _numbers(part: Tensor) -> Any:
    """What is carried at the start, of one row; one number, where all are the same."""
    values = [value if math.isfinite(value) else str(value) for value in part.flatten().tolist()]  # JSON has no −inf
    return values[0] if all(value == values[0] for value in values) else values
