"""recur export: targets by name and by ending, what it says, and what it refuses in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import recur
from recur.cli.app import run
from recur.export import TARGETS
from recur.nn import Connections, Recurrent
from tests.cli.test_cli import json_of
from tests.support import needs_core

pytestmark = needs_core

QUICK = ["--hidden-size", "6", "--threads", "1", "--steps", "2", "--no-baseline", "--quiet"]

OWN = """
from torch import sigmoid, tanh
from recur import Cell

class Mine(Cell):
    gates = ("n", "z")

    def step(self, x, h, s):
        z = sigmoid(x.z + h.z)
        return (z * s.h + (1 - z) * tanh(x.n + h.n),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a language model, of a cell of one's own, and of a cell without a program."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "book.txt").write_text("the network reads a word and the word is kept\n" * 40)
    (folder / "mine.py").write_text(OWN)
    for name, cell in {"lm": "gru", "own": f"{folder / 'mine.py'}:Mine", "none": "gru2014"}.items():
        arguments = ["train", str(folder / "book.txt"), "--cell", cell, "--out", str(folder / name), *QUICK]
        assert run(arguments) == 0
    return folder


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Of a call that ends with 2: its one line."""
    assert run(["export", *map(str, arguments)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_weights_that_torch_nn_loads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "model.safetensors"
    assert run(["export", str(folder / "lm"), "--to", "safetensors", str(path)]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("bytes", "largest difference", "torch.nn.GRU(", "embedding.weight"))
    model = recur.load(folder / "lm").model
    made = torch.nn.GRU(model.recurrent.input_size, 6, batch_first=True)
    made.load_state_dict(load_file(path))
    x = torch.randn(3, 7, made.input_size)
    with torch.no_grad():
        torch.testing.assert_close(made(x)[0], model.recurrent(x).outputs, rtol=1e-5, atol=1e-6)
    with safe_open(path, "pt") as opened:
        assert '"layer": "GRU"' in opened.metadata()["about"]
    rest = load_file(folder / "model.rest.safetensors")
    torch.testing.assert_close(rest["embedding.weight"], model.embedding.weight.detach())


def test_a_file_by_its_ending(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, "export", str(folder / "own"), str(folder / "own.pt2"))
    assert found["to"] == "torch"
    assert found["paths"] == [str(folder / "own.pt2")]
    assert found["size"] == (folder / "own.pt2").stat().st_size
    assert found["difference"] < 1e-5
    assert found["holds"] == "sequence(tokens, h_0) → logits, next_h_0"


def test_refusals_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lm = folder / "lm"
    known = ", ".join(sorted(TARGETS))
    assert f"unknown target 'onx'; did you mean 'onnx'? known: {known}" in refusal(capsys, lm, "--to", "onx", "m.x")
    assert "choose the format with --to: c, onnx, html, torch, safetensors" in refusal(capsys, lm, folder / "model.bin")
    assert "no run among" in refusal(capsys, folder, folder / "model.onnx")
    assert "nowhere is no folder" in refusal(capsys, lm, folder / "nowhere" / "model.onnx")
    assert "is a folder" in refusal(capsys, lm, "--to", "onnx", folder)
    assert "--quantize is not for --to torch" in refusal(capsys, lm, folder / "model.pt2", "--quantize")
    assert "--max-length is not for --to onnx" in refusal(capsys, lm, folder / "model.onnx", "--max-length", 9)
    said = refusal(capsys, folder / "none", folder / "model.onnx")
    assert "the cell gru2014 cannot be exported: GRU2014 has pointwise = False" in said
    said = refusal(capsys, folder / "own", folder / "own.safetensors")
    assert "torch.nn has no Mine: expected LSTM, GRU or RNN; --to torch and --to onnx export the whole model" in said
    assert not [*folder.glob("model.onnx"), *folder.glob("model.pt2"), *folder.glob("own.safetensors")]


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (Recurrent("elman", 3, 4, projection=2), "torch.nn has no elman with a projection"),
        (Recurrent("lstm", 3, 4, direction="backward"), "torch.nn has no backward-only network"),
        (Recurrent("lstm", 3, 4, num_layers=2, top=2), "torch.nn has one hidden size for all layers"),
        (
            Recurrent("lstm", 3, 4, num_layers=2, connections=Connections(residual=True)),
            "no residual connections",
        ),
    ],
    ids=["projected", "backward", "widths", "residual"],
)
def test_networks_that_torch_nn_has_not(network: Recurrent, why: str) -> None:
    from recur.export.torch_export import check_torch_layer

    with pytest.raises(recur.RecurError, match=f"{why}.*--to torch and --to onnx export the whole model"):
        check_torch_layer(network)
