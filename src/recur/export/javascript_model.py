"""A model as JavaScript: its functions, its weights packed for page/runtime.js, and what its drivers have to know."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from recur.errors import OptionError
from recur.export.graphs import Portable, Value
from recur.export.javascript import printed
from recur.export.javascript_kernel import module
from recur.export.javascript_tokens import vocab_table
from recur.export.lowered_values import Buffer
from recur.export.lowering import lowered
from recur.export.quantise import is_eight_bit, quantise
from recur.utils.types import JsonObject

ENGINE = ("runtime.js", "tokens.js", "subwords.js", "decode.js", "drivers.js", "series.js")
"""What runs without a page too, in a worker or in node."""

LONGEST = 1 << 20
"""Steps that a call may read; memory grows as it is needed."""


class JavaScript(NamedTuple):
    code: str
    """`Model`, drivers and functions: defines names, and does nothing."""
    about: JsonObject
    """What the code reads beside its weights."""
    weights: str
    """In base64."""


def javascript(portable: Portable, quantize: bool) -> JavaScript:
    functions, weights = lowered(portable.graphs, LONGEST, quantize)
    layout, packed = pack(weights, quantize)
    code = "\n".join([*map(source, ENGINE), printed(list(functions.values()), list(weights))])
    about: JsonObject = {
        "task": portable.task,
        "kind": portable.kind,
        "page": page_of(portable),
        "labels": list(portable.labels),
        "settings": portable.settings,
        "vocabs": {name: vocab_table(vocab) for name, vocab in portable.vocabs.items() if name in _read_by(portable)},
        "tables": {name: table.flatten().tolist() for name, table in portable.tables.items()},
        "start": {name: np.nan_to_num(part.numpy()).reshape(-1).tolist() for name, part in portable.start.items()},
        "graphs": {
            name: {
                "inputs": [value.name for value in graph.inputs],
                "outputs": [value.name for value in graph.outputs],
                "shapes": _shapes(graph.inputs),
            }
            for name, graph in portable.graphs.items()
        },
        "layout": layout,
        "kernel": base64.b64encode(module()).decode(),
    }
    return JavaScript(code, about, base64.b64encode(packed).decode())


def source(name: str) -> str:
    return (files("recur.export") / "page" / name).read_text(encoding="utf-8")


def page_of(portable: Portable) -> str:
    """Which page shows a model."""
    settings, kind = portable.settings, portable.kind
    if kind == "language":
        return "language"
    if kind == "writer":
        return "conditional" if portable.task == "conditional" else "pairs"
    if portable.task == "copy":
        return "copy"
    if kind == "forecaster":
        if any(name.startswith("static ") for name in settings["known"]):
            raise OptionError(
                "a page has no place for what is static of a series: train without --static, or take --to c"
            )
        return "forecaster"
    if settings.get("reads") == "numbers":
        return "numbers"
    if kind == "tagger" and "sequence" not in portable.graphs:
        raise OptionError("a page tags sentences as a whole, not tag by tag (--recurrence output): take --to c")
    return kind


def _read_by(portable: Portable) -> set[str]:
    """The vocabularies that tokens.js cuts texts with; the names of labels and columns stand elsewhere."""
    if portable.kind in ("language", "writer"):
        return {"vocab", "labels", "source", "target"}
    return {"vocab", "characters", "ngrams"}


def _shapes(values: Iterable[Value]) -> dict[str, list[int | str]]:
    return {value.name: list(value.shape) for value in values}


def pack(weights: Iterable[Buffer], quantize: bool) -> tuple[list[list[int | str]], bytes]:
    """What `unpack` of runtime.js reads: kinds and sizes, and the numbers, little-endian."""
    layout: list[list[int | str]] = []
    parts: list[bytes] = []
    for buffer in weights:
        value = buffer.value
        assert value is not None
        rows, columns = (value.shape[0], value[0].numel()) if value.dim() else (1, 1)
        if quantize and is_eight_bit(value):
            q, scale = quantise(value)
            layout.append(["int8", rows, columns])
            parts += [q.numpy().tobytes(), _bytes(scale.numpy(), "<f4")]
            continue
        layout.append([buffer.kind, rows, columns])
        parts.append(_bytes(value.numpy(), {"float": "<f4", "double": "<f8", "int": "<i4", "bool": "u1"}[buffer.kind]))
    return layout, b"".join(parts)


def _bytes(numbers: np.ndarray, form: str) -> bytes:
    return np.ascontiguousarray(numbers).astype(form).tobytes()
