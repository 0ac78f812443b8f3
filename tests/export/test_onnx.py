"""ONNX models, run by ONNX Runtime beside the models they were written from."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recur.errors import OptionError, RecurError
from recur.export import export
from recur.export.compare import SIZES, in_pytorch, largest_difference
from recur.export.graphs import Graph, Portable, example
from recur.export.parts import named
from recur.text import Vocab
from tests.export import cells, runs
from tests.support import needs_core

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = needs_core


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def said(path: Path) -> dict[str, Any]:
    """What a model says of itself."""
    about = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    return {key: json.loads(text) if text[:1] in "{[" else text for key, text in about.items()}


def names_in(graph: Any) -> list[str]:
    found = [value.name for value in (*graph.input, *graph.initializer)]
    for node in graph.node:
        found += node.output
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += names_in(attribute.g)
    return [name for name in found if name]


@pytest.fixture(scope="module")
def every() -> tuple[Graph, bytes, Counter[str]]:
    """Twelve networks in one model: one translation for all of them."""
    from recur.export.onnx_file import model_bytes

    graph = cells.graph_of(cells.samples())
    return graph, *model_bytes(Portable("cells", "numbers", "cells", {"cells": graph}), graph, False)


def test_cells_are_onnx_own_where_they_are_and_scans_where_not(every: tuple[Graph, bytes, Counter[str]]) -> None:
    """Directions of one layer are one operator; a user's LSTM is one, whatever the order of its gates."""
    graph, content, operators = every
    assert operators == {"LSTM": 4, "GRU": 1, "RNN": 2, "Scan": 7}
    nodes = [node for node in onnx.load_from_string(content).graph.node if node.op_type in ("LSTM", "GRU", "RNN")]
    ways = [next(a.s.decode() for a in node.attribute if a.name == "direction") for node in nodes]
    assert sorted(ways) == [*["bidirectional"] * 4, *["forward"] * 2, "reverse"]
    from recur.export.onnx_file import runtime

    assert largest_difference(graph, runtime(content)) < 2e-6


def test_every_operator_carries_its_state(every: tuple[Graph, bytes, Counter[str]]) -> None:
    """Independent of how graphs are captured: the networks themselves, their own weights, other sizes."""
    from recur.export.onnx_file import runtime

    graph, content, _ = every
    networks = cells.samples()
    weights = {name.partition("networks.")[2]: part for name, part in graph.program.state_dict.items()}
    torch.nn.ModuleList(networks).load_state_dict(weights)
    x, h = torch.randn(4, 9, cells.D), torch.randn(4, cells.H)
    with torch.no_grad():
        wanted = cells.Side(networks)(x, h)
    for ours, theirs in zip(wanted, runtime(content)((x, h)), strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=2e-6)


def test_no_name_begins_another_and_nothing_says_where_it_was_made(every: tuple[Graph, bytes, Counter[str]]) -> None:
    _, content, _ = every
    model = onnx.load_from_string(content)
    names = sorted(names_in(model.graph))
    assert len(set(names)) == len(names)
    assert not any(b.startswith(a) for a, b in itertools.pairwise(names))
    assert str(Path(__file__).parent.parent.parent).encode() not in content
    assert [entry.version for entry in model.opset_import if not entry.domain] == [20]


def test_a_wrong_model_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gates exchanged: the comparison is what stands between this and a file."""
    from recur.export import onnx_layers

    model = runs.language(tmp_path, cell="gru")
    name, _, told = onnx_layers.KINDS["gru"]
    monkeypatch.setitem(onnx_layers.KINDS, "gru", (name, [0, 1, 2], told))
    with pytest.raises(RecurError, match="off what PyTorch computes, more than 0.0001: no file is kept"):
        export(model, "onnx", tmp_path / "model.onnx")
    assert not list(tmp_path.glob("*.onnx"))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(OptionError, match=r"needs onnxscript, which is not installed: pip install 'recur\[export\]'"):
        export(model, "onnx", tmp_path / "model.onnx")


def test_a_language_model_in_eight_bits_goes_on_token_by_token(tmp_path: Path) -> None:
    """By what the file says of itself alone: vocabulary, first token, start, which output is which input."""
    model = runs.language(tmp_path, cell="minlstm", embedding=256, layers=2)
    written = export(model, "onnx", tmp_path / "model.onnx", quantize=True)
    whole = export(model, "onnx", tmp_path / "float32.onnx")
    assert written.size < 0.5 * whole.size
    assert "opset 20, 2 Scan" in written.holds
    assert "weights in 8 bits: outputs move by up to" in written.notes[-1]
    about, run = said(tmp_path / "model.onnx"), session(tmp_path / "model.onnx")
    assert about["task"] == "language"
    vocab = Vocab.from_json(json.dumps(about["vocabulary"]))
    ids = np.array([vocab.encode("the old red barn")], np.int64)
    state = {into: np.full((1, 6), about["start"][into], np.float32) for into in about["carried"].values()}
    outputs = [value.name for value in run.get_outputs()]
    together = run.run(None, {"tokens": ids, **state})[0]
    for t in range(ids.shape[1]):
        found = dict(zip(outputs, run.run(None, {"tokens": ids[:, t : t + 1], **state}), strict=True))
        state = {into: found[name] for name, into in about["carried"].items()}
        np.testing.assert_allclose(found["logits"][0, 0], together[0, t], atol=1e-5)
    with torch.no_grad():
        exact = model.model(torch.from_numpy(ids))[0].numpy()
    assert 1e-6 < np.abs(together - exact).max() < 0.02  # of logits: what 8 bits change, and no more
    np.testing.assert_allclose(session(tmp_path / "float32.onnx").run(None, {"tokens": ids, **{
        into: np.full((1, 6), about["start"][into], np.float32) for into in about["carried"].values()
    }})[0], exact, atol=1e-5)  # fmt: skip


def test_pairs_are_two_files(tmp_path: Path) -> None:
    model = runs.seq2seq(tmp_path)
    written = export(model, "onnx", tmp_path / "model.onnx")
    assert [path.name for path in written.paths] == ["model.encode.onnx", "model.step.onnx"]
    encode, step = map(session, written.paths)
    about = said(written.paths[1])
    source, target = (Vocab.from_json(json.dumps(about[f"vocabulary.{name}"])) for name in ("source", "target"))
    for word in ("abc", "cab", "bb"):
        found = encode.run(None, {"source": np.array([source.encode(word)], np.int64)})
        known = dict(zip([value.name for value in encode.get_outputs()], found, strict=True))
        token, written_so_far = about["settings"]["first"], list[int]()
        while len(written_so_far) < about["settings"]["longest"]:
            made = step.run(None, {"token": np.array([token]), **known})
            by_name = dict(zip([value.name for value in step.get_outputs()], made, strict=True))
            known |= {into: by_name[name] for name, into in about["carried"].items()}
            by_name["logp"][:, about["settings"]["never"]] = -np.inf
            token = int(by_name["logp"].argmax())
            if token == about["settings"]["end"]:
                break
            written_so_far.append(token)
        assert target.decode(written_so_far) == model(word)


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
def test_in_node(every: tuple[Graph, bytes, Counter[str]], tmp_path: Path) -> None:
    """All cells in WebAssembly, as a page would run them."""
    graph, content, _ = every
    given = [example(value, SIZES[3], seed) for seed, value in enumerate(graph.inputs)]
    named_given = {
        value.name: (list(part.shape), part.flatten().tolist()) for value, part in zip(graph.inputs, given, strict=True)
    }
    (tmp_path / "model.onnx").write_bytes(content)
    (tmp_path / "given.json").write_text(json.dumps(named_given))
    found = subprocess.run(["node", "-e", IN_NODE], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    for (shape, numbers), ours in zip(json.loads(found), graph(*given), strict=True):
        theirs = torch.tensor(numbers).reshape(shape)
        torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=2e-6)


def test_names_of_a_graph_and_shapes_that_are_tried(every: tuple[Graph, bytes, Counter[str]]) -> None:
    graph, *_ = every
    assert {(sizes["B"], sizes["T"]) for sizes in SIZES} == {(1, 1), (3, 1), (1, 13), (5, 4)}
    assert [example(value, SIZES[3]).shape for value in graph.inputs] == [(5, 4, cells.D), (5, cells.H)]
    assert largest_difference(graph, in_pytorch(graph)) == 0
    off = largest_difference(graph, lambda given: [-part for part in graph(*given)])
    assert off > 0.5
    with pytest.raises(RecurError, match="y_00 came out as"):
        largest_difference(graph, lambda given: [part[None] for part in graph(*given)])
    assert named(graph)[0] == ["x", "h"]
