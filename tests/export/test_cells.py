"""Cells of every kind as ONNX, torch.export, C and JavaScript have them: eleven networks in one graph."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch

from recur.errors import RecurError
from recur.export.artifacts import TEST_SHAPES, largest_difference, run_in_pytorch, value_names
from recur.export.graphs import Graph, PortableModel, example_tensor
from recur.export.onnx_model import model_bytes, run_in_onnxruntime
from recur.export.torch_export import program_bytes, replace_recur_operators, run_program
from tests.export import c_library, cells
from tests.export.c_library import needs_gcc
from tests.export.node import difference, needs_node
from tests.support import needs_core

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = needs_core

Every: TypeAlias = tuple[Graph, bytes, Counter[str]]
"""The graph, its ONNX model, and the recurrent operators in it."""


def names_in(graph: Any) -> list[str]:
    found = [value.name for value in (*graph.input, *graph.initializer)]
    for node in graph.node:
        found += node.output
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += names_in(attribute.g)
    return [name for name in found if name]


@pytest.fixture(scope="module")
def every() -> Every:
    """Eleven networks in one model: one translation for all of them."""
    graph = cells.graph_of(cells.samples())
    return graph, *model_bytes(PortableModel("cells", "numbers", "cells", {"cells": graph}), graph, False)


def test_cells_are_onnx_own_where_they_are_and_scans_where_not(every: Every) -> None:
    """Directions of one layer are one operator; a user's LSTM is one, whatever the order of its gates."""
    graph, content, operators = every
    assert operators == {"LSTM": 3, "GRU": 1, "RNN": 1, "Scan": 6}
    nodes = [node for node in onnx.load_from_string(content).graph.node if node.op_type in ("LSTM", "GRU", "RNN")]
    ways = [next(a.s.decode() for a in node.attribute if a.name == "direction") for node in nodes]
    assert sorted(ways) == [*["bidirectional"] * 3, "forward", "reverse"]
    assert largest_difference(graph, run_in_onnxruntime(content)) < 2e-6


def test_every_operator_carries_its_state(every: Every) -> None:
    """Independent of how graphs are captured: the networks themselves, their own weights, other sizes."""
    graph, content, _ = every
    networks = cells.samples()
    weights = {name.partition("networks.")[2]: part for name, part in graph.program.state_dict.items()}
    torch.nn.ModuleList(networks).load_state_dict(weights)
    x, h = torch.randn(4, 9, cells.D), torch.randn(4, cells.H)
    with torch.no_grad():
        wanted = cells.Side(networks)(x, h)
    for ours, theirs in zip(wanted, run_in_onnxruntime(content)((x, h)), strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=2e-6)


def test_no_name_begins_another_and_nothing_says_where_it_was_made(every: Every) -> None:
    _, content, _ = every
    model = onnx.load_from_string(content)
    names = sorted(names_in(model.graph))
    assert len(set(names)) == len(names)
    assert not any(b.startswith(a) for a, b in itertools.pairwise(names))
    assert str(Path(__file__).parent.parent.parent).encode() not in content
    assert [entry.version for entry in model.opset_import if not entry.domain] == [20]


def test_every_kind_of_cell_is_pytorchs_own_operations(every: Every, tmp_path: Path) -> None:
    """Layers of PyTorch's where it has them, in both directions; its scan over the program elsewhere."""
    graph, *_ = every
    program = replace_recur_operators(graph.program)
    used = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert not any("recur" in target for target in used)
    assert [used.count(f"aten.{name}.input") for name in ("lstm", "gru", "rnn_relu")] == [2, 1, 1]
    assert used.count("scan") == 8
    content = program_bytes(program, {})
    (tmp_path / "cells.pt2").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "cells.pt2") as archive:
        inside = b"".join(map(archive.read, archive.namelist()))
    assert str(Path(__file__).parent.parent.parent).encode() not in inside
    assert largest_difference(graph, run_program(content)) < 2e-6


@needs_gcc
def test_cells_in_c_are_those_of_python(every: Every, tmp_path: Path) -> None:
    """One step, and several."""
    assert c_library.difference(every[0], (1, 7), tmp_path) < 2e-6


@needs_node
def test_cells_in_javascript_are_those_of_python(every: Every) -> None:
    settings = {"reads": "numbers", "features": 1, "stack": 1}
    assert difference(PortableModel("cells", "numbers", "cells", {"cells": every[0]}, settings=settings)) < 2e-6


IN_NODE = """
const ort = require("onnxruntime-web"), fs = require("fs");
ort.env.wasm.numThreads = 1;
(async () => {
  const session = await ort.InferenceSession.create(new Uint8Array(fs.readFileSync("model.onnx")));
  const given = JSON.parse(fs.readFileSync("given.json")), feeds = {};
  for (const [name, [shape, numbers]] of Object.entries(given))
    feeds[name] = new ort.Tensor("float32", Float32Array.from(numbers), shape);
  const found = await session.run(feeds);
  console.log(JSON.stringify(session.outputNames.map(name => [found[name].dims, Array.from(found[name].data)])));
})();
"""


def has_onnxruntime_web() -> bool:
    node = shutil.which("node")
    asked = [node or "node", "-e", "require.resolve('onnxruntime-web')"]
    return node is not None and subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_onnxruntime_web(), reason="no onnxruntime-web in node: npm install it, and set NODE_PATH")
def test_in_node(every: Every, tmp_path: Path) -> None:
    """All cells in WebAssembly, as a page would run them."""
    graph, content, _ = every
    given = [example_tensor(value, TEST_SHAPES[3], seed) for seed, value in enumerate(graph.inputs)]
    named_given = {
        value.name: (list(part.shape), part.flatten().tolist()) for value, part in zip(graph.inputs, given, strict=True)
    }
    (tmp_path / "model.onnx").write_bytes(content)
    (tmp_path / "given.json").write_text(json.dumps(named_given))
    found = subprocess.run(["node", "-e", IN_NODE], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    for (shape, numbers), ours in zip(json.loads(found), graph(*given), strict=True):
        theirs = torch.tensor(numbers).reshape(shape)
        torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=2e-6)


def test_names_of_a_graph_and_shapes_that_are_tried(every: Every) -> None:
    graph, *_ = every
    assert {(sizes["B"], sizes["T"]) for sizes in TEST_SHAPES} == {(1, 1), (3, 1), (1, 13), (5, 4)}
    assert [example_tensor(value, TEST_SHAPES[3]).shape for value in graph.inputs] == [(5, 4, cells.D), (5, cells.H)]
    assert largest_difference(graph, run_in_pytorch(graph)) == 0
    off = largest_difference(graph, lambda given: [-part for part in graph(*given)])
    assert off > 0.5
    with pytest.raises(RecurError, match="y_00 has the wrong type"):
        largest_difference(graph, lambda given: [part[None] for part in graph(*given)])
    assert value_names(graph)[0] == ["x", "h"]
