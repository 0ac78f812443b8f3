"""ONNX models of runs, driven by what they say of themselves alone, in ONNX Runtime."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recur.data.text import Vocab
from recur.errors import OptionError, RecurError
from recur.export import export
from recur.tasks.common.predictor import Predictor
from tests.export import runs
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


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Predictor[Any]:
    return runs.seq2seq(tmp_path_factory.mktemp("pairs"))


def test_a_wrong_model_is_not_kept(pairs: Predictor[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gates exchanged: the comparison is what stands between this and a file."""
    from recur.export import onnx_model

    name, _, told = onnx_model.ONNX_LAYERS["gru"]
    monkeypatch.setitem(onnx_model.ONNX_LAYERS, "gru", (name, [0, 1, 2], told))
    with pytest.raises(RecurError, match="more than 0.0001: no file was written"):
        export(pairs, "onnx", tmp_path / "model.onnx")
    assert not list(tmp_path.glob("*.onnx"))
    monkeypatch.delitem(sys.modules, "recur.export.onnx_model")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(OptionError, match=r"needs onnxscript, which is not installed: pip install 'recur\[export\]'"):
        export(pairs, "onnx", tmp_path / "model.onnx")


def test_a_language_model_in_eight_bits_goes_on_token_by_token(tmp_path: Path) -> None:
    """By what the file says of itself alone: vocabulary, first token, start, which output is which input."""
    model = runs.language(tmp_path, cell="lstm", hidden_size=16, embedding_size=64)
    written = export(model, "onnx", tmp_path / "model.onnx", quantize=True)
    assert written.size < 0.6 * sum(4 * weight.numel() for weight in model.model.parameters())
    assert "opset 20, 1 LSTM" in written.holds
    assert "8-bit weights change outputs by up to" in written.notes[-1]
    about, run = said(tmp_path / "model.onnx"), session(tmp_path / "model.onnx")
    assert about["task"] == "language"
    assert about["step"] == {"size": 1, "of": "char"}
    vocab = Vocab.from_json(json.dumps(about["vocabulary"]))
    ids = np.array([vocab.encode("the old red barn")], np.int64)
    state = {into: np.full((1, 16), about["start"][into], np.float32) for into in about["carried"].values()}
    outputs = [value.name for value in run.get_outputs()]
    together = run.run(None, {"tokens": ids, **state})[0]
    for t in range(ids.shape[1]):
        found = dict(zip(outputs, run.run(None, {"tokens": ids[:, t : t + 1], **state}), strict=True))
        state = {into: found[name] for name, into in about["carried"].items()}
        np.testing.assert_allclose(found["logits"][0, 0], together[0, t], atol=1e-5)
    with torch.no_grad():
        exact = model.model(torch.from_numpy(ids)).logits.numpy()
    assert 1e-6 < np.abs(together - exact).max() < 0.02  # of logits: what 8 bits change, and no more


def test_pairs_are_two_files(pairs: Predictor[Any], tmp_path: Path) -> None:
    written = export(pairs, "onnx", tmp_path / "model.onnx")
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
        assert target.decode(written_so_far) == pairs(word)
