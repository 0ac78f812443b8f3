"""A model in JavaScript run beside the one it was printed from, where node is here."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from recur.errors import RecurError
from recur.export.compare import apart, examples
from recur.export.graphs import Portable
from recur.export.javascript_model import JavaScript

SIZES = ({"B": 1, "T": 1, "S": 1, "N": 1}, {"B": 1, "T": 13, "S": 7, "N": 3}, {"B": 1, "T": 4, "S": 3, "N": 8})
"""Of one row each: one step, many, and some."""

ANSWER = """
const plain = (key, value) => ArrayBuffer.isView(value) ? Array.from(value)
  : typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
console.log(JSON.stringify((() => { %s })(), plain));
"""

LONGEST = 300
"""Seconds that node may take."""


def node() -> str | None:
    return shutil.which("node")


def in_node(code: str, body: str, **given: Any) -> Any:
    """What the body of a function returns behind this code, with what is given by name."""
    program = node()
    assert program is not None
    names = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.js"
        file.write_text(code + "\n" + names + ANSWER % body, encoding="utf-8")
        try:
            found = subprocess.run(
                [program, str(file)], capture_output=True, encoding="utf-8", check=True, timeout=LONGEST
            )
        except subprocess.SubprocessError as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            raise RecurError(
                f"node does not run the model: {next((x for x in said if 'Error' in x), said[-1])}"
            ) from None
    return json.loads(found.stdout)


def with_model(made: JavaScript, body: str, **given: Any) -> Any:
    """… with `model` and `about` there."""
    begin = f"const about = {json.dumps(made.about)};\nconst model = new Model(about, {json.dumps(made.weights)});\n"
    return in_node(made.code + "\n" + begin, body, **given)


def difference(portable: Portable, made: JavaScript, quantize: bool) -> float:
    """The largest between node and PyTorch, of all graphs at several sizes; of numbers above 1, the share that it is of
    them. 8-bit weights are compared with the numbers that they stand for."""
    calls, expected = [], []
    positive = bool(portable.settings.get("positive"))
    for name, graph in portable.graphs.items():
        exact = graph.with_eight_bits() if quantize else graph
        for k, sizes in enumerate(SIZES):
            given = examples(graph, sizes, 100 * k, positive)
            named = zip(graph.inputs, given, strict=True)
            calls.append((name, {value.name: part.flatten().tolist() for value, part in named}))
            expected.append(dict(zip((value.name for value in graph.outputs), exact(*given), strict=True)))
    found = with_model(made, "return calls.map(([graph, given]) => model.run(graph, given));", calls=calls)
    return max(
        apart(part, torch.tensor([*map(_number, row[name])], dtype=part.dtype).view(part.shape))
        for row, parts in zip(found, expected, strict=True)
        for name, part in parts.items()
    )


def _number(written: float | str) -> float:
    return float(written.replace("Infinity", "inf")) if isinstance(written, str) else written
