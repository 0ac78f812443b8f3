"""Export to HTML: a model in one file that opens offline, with a page for its task.

The model is JavaScript: functions printed from its graphs, packed weights (page/runtime.js) and JSON for the interface.
The page loads nothing and sends nothing: its content security policy allows its own style and script, by their hashes,
and no request. Weights are 8 bits unless `quantize` is False. If node is installed, the page's code runs in it and is
compared with PyTorch before the file is written.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from recur.data.series import Panel, Series
from recur.data.signals import read_signals
from recur.errors import OptionError, RecurError
from recur.export import ExportOptions, ExportResult
from recur.export.artifacts import check_difference, example_inputs, keep_files, relative_difference
from recur.export.escaping import fill_template, html_text, json_text
from recur.export.graphs import PortableModel, is_quantized, quantize_rows
from recur.export.javascript import print_functions, wasm_module
from recur.export.loop_ir import Buffer
from recur.export.lowering import lower_graphs
from recur.export.tokenizers import describe_vocabulary
from recur.runs import Run
from recur.tasks.common.runs import options_of_run, with_run_texts
from recur.tasks.forecast.task import read_series
from recur.utils.types import JsonObject

ENGINE_SCRIPTS = ("runtime.js", "tokens.js", "subwords.js", "decode.js", "drivers.js", "series.js")
"""Scripts that also run without a page, in a worker or in node."""

MAX_STEPS = 1 << 20
"""Maximum number of steps per call; memory grows on demand."""


class JavaScriptModel(NamedTuple):
    """A model as JavaScript."""

    code: str
    """`Model`, interface and functions; only definitions."""
    about: JsonObject
    """JSON that the code reads beside the weights."""
    weights: str
    """Weights in base64."""


def build_javascript(portable: PortableModel, quantize: bool) -> JavaScriptModel:
    functions, weights = lower_graphs(portable.graphs, MAX_STEPS, quantize)
    layout, packed = pack_weights(weights, quantize)
    code = "\n".join([*map(read_source, ENGINE_SCRIPTS), print_functions(list(functions.values()), list(weights))])
    about: JsonObject = {
        "task": portable.task,
        "kind": portable.kind,
        "page": page_kind(portable),
        "labels": list(portable.labels),
        "settings": portable.settings,
        "vocabs": {
            name: describe_vocabulary(vocab).to_json()
            for name, vocab in portable.vocabs.items()
            if name in _vocabularies_read(portable)
        },
        "tables": {name: table.flatten().tolist() for name, table in portable.tables.items()},
        "start": {name: np.nan_to_num(part.numpy()).reshape(-1).tolist() for name, part in portable.start.items()},
        "graphs": {
            name: {
                "inputs": [value.name for value in graph.inputs],
                "outputs": [value.name for value in graph.outputs],
                "shapes": {value.name: list(value.shape) for value in graph.inputs},
            }
            for name, graph in portable.graphs.items()
        },
        "layout": layout,
        "kernel": base64.b64encode(wasm_module()).decode(),
    }
    return JavaScriptModel(code, about, base64.b64encode(packed).decode())


def read_source(name: str) -> str:
    return (files("recur.export") / "page" / name).read_text(encoding="utf-8")


def page_kind(portable: PortableModel) -> str:
    """Return the name of the page that shows a model."""
    settings, kind = portable.settings, portable.kind
    if kind == "language":
        return "language"
    if kind == "writer":
        return "conditional" if portable.task == "conditional" else "pairs"
    if "row" in portable.graphs:
        return "row"
    if portable.task == "copy":
        return "copy"
    if kind == "forecaster":
        if any(name.startswith("static ") for name in settings["known"]):
            raise OptionError("a page has no input for static covariates: train without --static, or use --to c")
        return "forecaster"
    if settings.get("reads") == "numbers":
        return "numbers"
    if kind == "tagger" and "sequence" not in portable.graphs:
        raise OptionError("a page cannot tag with --recurrence output: use --to c")
    return kind


def _vocabularies_read(portable: PortableModel) -> set[str]:
    """Return the vocabularies that tokens.js uses; names of labels and columns are elsewhere."""
    if portable.kind in ("language", "writer"):
        return {"vocab", "labels", "source", "target"}
    return {"vocab", "characters", "ngrams"}


def pack_weights(weights: Iterable[Buffer], quantize: bool) -> tuple[list[list[int | str]], bytes]:
    """Return the layout (kind, rows, columns) and the little-endian numbers that `unpack` of runtime.js reads."""
    layout: list[list[int | str]] = []
    parts: list[bytes] = []
    for buffer in weights:
        value = buffer.value
        assert value is not None
        rows, columns = (value.shape[0], value[0].numel()) if value.dim() else (1, 1)
        if quantize and is_quantized(value):
            q, scale = quantize_rows(value)
            layout.append(["int8", rows, columns])
            parts += [q.numpy().tobytes(), _bytes(scale.numpy(), "<f4")]
            continue
        layout.append([buffer.kind, rows, columns])
        parts.append(_bytes(value.numpy(), {"float": "<f4", "double": "<f8", "int": "<i4", "bool": "u1"}[buffer.kind]))
    return layout, b"".join(parts)


def _bytes(numbers: np.ndarray, form: str) -> bytes:
    return np.ascontiguousarray(numbers).astype(form).tobytes()


NODE_SHAPES = ({"B": 1, "T": 1, "S": 1, "N": 1}, {"B": 1, "T": 13, "S": 7, "N": 3}, {"B": 1, "T": 4, "S": 3, "N": 8})
"""Shapes at which node is compared with PyTorch, one row each."""

PRINT_RESULT = """
const plain = (key, value) => ArrayBuffer.isView(value) ? Array.from(value)
  : typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
console.log(JSON.stringify((() => { %s })(), plain));
"""

NODE_TIMEOUT = 300
"""Seconds that node may take."""


def find_node() -> str | None:
    return shutil.which("node")


def run_in_node(code: str, body: str, **given: Any) -> Any:
    """Run code in node, then the body of a function with these values by name; return its result."""
    program = find_node()
    assert program is not None
    names = "".join(f"const {name} = {json_text(value)};\n" for name, value in given.items())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.cjs"  # .cjs: a package.json above cannot change the module type
        file.write_text(code + "\n" + names + PRINT_RESULT % body, encoding="utf-8")
        try:
            found = subprocess.run(
                [program, str(file)],
                cwd=folder,
                capture_output=True,
                encoding="utf-8",
                check=True,
                timeout=NODE_TIMEOUT,
            )
        except subprocess.SubprocessError as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            raise RecurError(
                f"node cannot run the model: {next((x for x in said if 'Error' in x), said[-1])}"
            ) from None
    return json.loads(found.stdout)


def run_model_in_node(made: JavaScriptModel, body: str, **given: Any) -> Any:
    """Run the body of a function in node with `model` and `about` defined."""
    begin = f"const about = {json_text(made.about)};\nconst model = new Model(about, {json_text(made.weights)});\n"
    return run_in_node(made.code + "\n" + begin, body, **given)


def node_difference(portable: PortableModel, made: JavaScriptModel, quantize: bool) -> float:
    """Return the largest difference between node and PyTorch over all graphs and shapes; 8-bit weights are compared
    with their dequantized numbers."""
    calls, expected = [], []
    positive = bool(portable.settings.get("positive"))
    for name, graph in portable.graphs.items():
        exact = graph.with_eight_bits() if quantize else graph
        for k, sizes in enumerate(NODE_SHAPES):
            given = example_inputs(graph, sizes, 100 * k, positive)
            named = zip(graph.inputs, given, strict=True)
            calls.append((name, {value.name: part.flatten().tolist() for value, part in named}))
            expected.append(dict(zip((value.name for value in graph.outputs), exact(*given), strict=True)))
    found = run_model_in_node(made, "return calls.map(([graph, given]) => model.run(graph, given));", calls=calls)
    return max(
        relative_difference(part, torch.tensor([*map(_parse_number, row[name])], dtype=part.dtype).view(part.shape))
        for row, parts in zip(found, expected, strict=True)
        for name, part in parts.items()
    )


def _parse_number(written: float | str) -> float:
    return float(written.replace("Infinity", "inf")) if isinstance(written, str) else written


EXAMPLE_ROWS = 400
"""Rows of an example: the last ones of a series, the first ones of a sequence."""


def example_input(portable: PortableModel) -> str:
    """Return the example that a page of numbers opens with, from the run's training data; empty if none is found."""
    if portable.run is None or not (portable.kind == "forecaster" or portable.settings.get("reads") == "numbers"):
        return ""
    try:
        if portable.kind == "forecaster":
            return _series(portable.run, int(portable.settings["season"]))
        return _sequence(portable.run) if portable.run.manifest.texts.get("texts") else ""
    except RecurError:  # the training data was moved or deleted
        return ""


def _series(run: Run, season: int) -> str:
    panel, _ = read_series(with_run_texts(run, options_of_run(run), ("texts", "test"), changed=True))  # type: ignore[arg-type]
    return series_to_csv(panel, panel.series[0], season)


def series_to_csv(panel: Panel, one: Series, season: int) -> str:
    """Return a series as CSV with dates and covariates; future rows have no values. Whole seasons are cut off at the
    start: without dates, the position of the first row decides its phase."""
    first = -(-max(0, len(one) - EXAMPLE_ROWS) // season) * season
    ahead = len(one.future) if panel.future else len(one)
    dates = panel.dates(one, 0, ahead)
    header = [*(["date"] if dates else []), *map(_quoted, (*panel.targets, *panel.future, *panel.past))]
    lines = [",".join(header)] if len(header) > 1 else []
    for t in range(first, ahead):
        rows = (one.values, one.future, one.past)
        cells = [
            value for columns in rows for value in (columns[t] if t < len(columns) else [math.nan] * columns.shape[1])
        ]
        written = ["" if math.isnan(value) else f"{value:.10g}" for value in cells]
        lines.append(",".join([*dates[t : t + 1], *written]))
    return "\n".join(lines)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',;"\t') else name


def _sequence(run: Run) -> str:
    options = with_run_texts(run, options_of_run(run), ("texts",), changed=True)
    values = read_signals(getattr(options, "texts", ()))[0].values[:EXAMPLE_ROWS]
    return "\n".join(" ".join(f"{number:.6g}" for number in step) for step in values.tolist())


PAGE_SCRIPTS = ("words.js", "dom.js", "chart.js", "view_language.js", "view_text.js", "view_numbers.js", "app.js")
"""Scripts of the page, after the model's code."""


HIDDEN_FACTS = {"run", "task", "known", "past", "moves", "features", "numbers", "words"}
"""Facts that the page shows elsewhere or not at all."""

LARGE_PAGE = 2_000_000
"""Bytes from which a note explains the size."""


def write(portable: PortableModel, path: Path, options: ExportOptions) -> ExportResult:
    quantize = options.quantize is not False
    made = build_javascript(portable, quantize)
    made.about["example"] = example_input(portable)
    content = page(portable, made, quantize).encode()
    found = None if find_node() is None else check_difference(node_difference(portable, made, quantize), "the page")
    keep_files({path: content})
    holds = f"{portable.task}, {'8-bit' if quantize else 'float32'} weights, a page that works offline"
    notes = portable.notes
    if made.about["example"]:
        rows = str(made.about["example"]).count("\n") + 1
        notes = (*notes, f"the page opens with an example of {rows} rows from the training data")
    if len(content) > LARGE_PAGE and "ngrams" in portable.vocabs:
        notes = (
            *notes,
            "most of the size is the n-gram models that the network is mixed with; --no-plain leaves them out",
        )
    return ExportResult((path,), len(content), found, holds, f"open {path} in a browser", notes)


def page(portable: PortableModel, made: JavaScriptModel, quantize: bool) -> str:
    name = Path(portable.name).name or portable.name
    script = "\n".join(['"use strict";', "(() => {", made.code, *map(read_source, PAGE_SCRIPTS), "})();"])
    style = read_source("style.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}' 'wasm-unsafe-eval'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    about = made.about | {
        "name": name,
        "facts": [(key, value) for key, value in portable.facts.items() if key not in HIDDEN_FACTS],
        "notes": list(portable.notes),
        "weights": "int8" if quantize else "float32",
    }
    parts = {"policy": policy, "title": f"{html_text(name)} · {portable.task}", "style": style, "script": script}
    parts["weights"] = made.weights
    template = read_source("page.html")
    whole = len(fill_template(template, parts | {"about": json_text(about | {"bytes": ""})}).encode()) - len('""')
    about["bytes"] = whole + len(str(whole + len(str(whole))))  # including the digits of this number
    return fill_template(template, parts | {"about": json_text(about)})


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
