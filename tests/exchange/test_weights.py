"""Weights of torch.nn and Keras models: equal outputs, and one line for whatever does not fit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import recur
from recur.cli.app import run
from recur.data.text import SPECIALS
from recur.errors import RunError
from recur.exchange import import_run, read_weights

LETTERS = [*"abcdefgh \n"]
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}


class CharModel(nn.Module):
    """A language or classification model as tutorials of PyTorch write it."""

    def __init__(self, kind: str, out: int, both: bool = False) -> None:
        super().__init__()
        self.encoder = nn.Embedding(len(LETTERS), 5)
        self.rnn = KINDS[kind](5, 7, num_layers=2, batch_first=True, bidirectional=both)
        self.decoder = nn.Linear(14 if both else 7, out)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.rnn(self.encoder(ids))[0]
        return self.decoder(states)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("both", [False, True])
def test_layers_of_torch(kind: str, both: bool, here: Path) -> None:
    model = CharModel(kind, 3, both)
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, "model.pt")
    save_file(model.state_dict(), "model.safetensors")
    x = torch.randn(2, 6, 5)
    for name in ("model.pt", "model.safetensors"):
        found = read_weights(name)
        torch.testing.assert_close(found.recurrent()(x).outputs, model.rnn(x)[0])
        assert found.embedding is not None
        assert torch.equal(found.embedding, model.encoder.weight)
        assert found.output is not None
        assert torch.equal(found.output[0], model.decoder.weight)


def test_a_language_model_has_the_same_probabilities(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = CharModel("gru", len(LETTERS))
    torch.save(model.state_dict(), "model.pt")
    Path("letters.json").write_text(json.dumps({letter: k for k, letter in enumerate(LETTERS)}))
    assert run(["import", "model.pt", "--vocab", "letters.json", "--out", "imported"]) == 0
    network, vocab = recur.load("imported").model, recur.load("imported").run.vocabs["vocab"]
    text = "bad cab\n"
    wanted = model(torch.tensor([[LETTERS.index(letter) for letter in text]])).log_softmax(-1)[0]
    found = network(torch.from_numpy(vocab.encode(text).astype(np.int64))[None]).logits.log_softmax(-1)[0]
    torch.testing.assert_close(found[:, [vocab.ids[letter] for letter in LETTERS]], wanted)
    assert torch.all(found[:, :4].exp() == 0)  # special tokens, which the model does not have
    for command in (["sample", "imported", "--length", "5"], ["export", "imported", "model.h"], ["card", "imported"]):
        assert run(command) == 0, capsys.readouterr().err


@pytest.mark.parametrize("both", [False, True])
def test_a_classifier_has_the_same_probabilities(both: bool, here: Path) -> None:
    model = CharModel("lstm", 2, both)
    torch.save(model.state_dict(), "model.pt")
    import_run("model.pt", "imported", vocab=LETTERS, task="classify", labels=["x", "y"], pool="max")
    ids = torch.tensor([[LETTERS.index(letter) for letter in "deaf"]])
    states = model.rnn(model.encoder(ids))[0]
    wanted = model.decoder(states.amax(1)).softmax(-1)[0]
    found = recur.load("imported").probabilities("deaf")
    np.testing.assert_allclose([found["x"], found["y"]], wanted.detach(), rtol=1e-5)


def test_special_tokens_of_the_model_keep_their_rows(here: Path) -> None:
    model = CharModel("lstm", len(LETTERS))
    torch.save(model.state_dict(), "model.pt")
    tokens = ["<pad>", "<unk>", *LETTERS[2:]]
    import_run("model.pt", "imported", vocab=tokens)
    network = recur.load("imported").model
    rows = {name: network.embedding.weight[SPECIALS.index(name)] for name in SPECIALS}
    assert torch.equal(rows["<pad>"], model.encoder.weight[0])
    assert torch.equal(rows["<unk>"], model.encoder.weight[1])
    assert torch.equal(rows["<bos>"] + rows["<eos>"], torch.zeros(5))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda state: state.pop("rnn.weight_hh_l1"), "lacks weight_ih or weight_hh"),
        (lambda state: state.pop("encoder.weight"), "has no embedding"),
        (lambda state: state.update({"rnn.weight_ih_l1": torch.zeros(28, 9)}), "weight_ih of layer 1 must be"),
        (lambda state: state.update({"rnn.weight_hr_l0": torch.zeros(3, 7)}), "projection"),
        (lambda state: state.update({"other.weight": torch.zeros(10, 7)}), "may each be the output layer"),
        (lambda state: [state.pop(k) for k in list(state) if k.startswith("rnn")], "has no nn.RNN"),
    ],
)
def test_what_does_not_fit_is_one_line(change: Any, says: str, here: Path) -> None:
    state = dict(CharModel("lstm", len(LETTERS)).state_dict())
    change(state)
    torch.save(state, "model.pt")
    with pytest.raises(RunError, match=says):
        import_run("model.pt", "imported", vocab=LETTERS)


def test_wrong_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(CharModel("gru", 10), "module.pt")  # a pickled module would execute code
    Path("letters.txt").write_text("\n".join("abc"))
    Path("text.keras").write_text("no")
    for name, says in (
        ("module.pt", "does not hold tensors alone"),
        ("none.pt", "no file"),
        ("letters.txt", "must end"),
    ):
        assert run(["import", name, "--vocab", "letters.txt", "--out", "x"]) == 2
        assert says in capsys.readouterr().err
    torch.save(CharModel("gru", 10).state_dict(), "model.pt")
    assert run(["import", "model.pt", "--vocab", "letters.txt", "--out", "x"]) == 2
    assert "the vocabulary has 3 tokens, and the embedding has 10 rows" in capsys.readouterr().err
    assert not Path("x").exists()


# Keras files, written by hand in its layout ----------------------------------------------------------------------


def keras_file(kind: str, path: Path, legacy: bool = False) -> nn.Module:
    """Write the weights of a torch model as Keras stores them; return the model."""
    h5py = pytest.importorskip("h5py")
    model = CharModel(kind, 4)
    name = {"lstm": "lstm", "gru": "gru", "elman": "simple_rnn"}[kind]
    leaves = ("kernel:0", "recurrent_kernel:0", "bias:0") if legacy else ("0", "1", "2")
    with h5py.File(path, "w") as file:
        file[f"layers/embedding/vars/{'embeddings:0' if legacy else '0'}"] = model.encoder.weight.detach().numpy()
        for k in range(2):
            parts = [getattr(model.rnn, f"{part}_l{k}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            if kind == "gru":  # Keras: z, r, n
                parts = [torch.cat([part.chunk(3)[i] for i in (1, 0, 2)]) for part in parts]
            U, W, b, c = (part.detach().numpy() for part in parts)
            group = f"layers/{name}{f'_{k}' if k else ''}/{f'{name}_cell' if legacy else 'cell'}"
            bias = np.stack([b, c]) if kind == "gru" else b + c
            for leaf, value in zip(leaves, (U.T, W.T, bias), strict=True):
                file[f"{group}/{'' if legacy else 'vars/'}{leaf}"] = value
        file["layers/dense/vars/0"] = model.decoder.weight.detach().numpy().T
        file["layers/dense/vars/1"] = model.decoder.bias.detach().numpy()
    return model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("legacy", [False, True])
def test_layers_of_keras(kind: str, legacy: bool, here: Path) -> None:
    model: Any = keras_file(kind, here / "model.h5", legacy)
    found, x = read_weights("model.h5"), torch.randn(2, 6, 5)
    torch.testing.assert_close(found.recurrent()(x).outputs, model.rnn(x)[0])
    assert found.output is not None
    assert torch.equal(found.output[0], model.decoder.weight)


def test_options_of_keras_without_an_equal_are_refused(here: Path) -> None:
    h5py = pytest.importorskip("h5py")
    keras_file("lstm", here / "model.h5")
    layer = {"class_name": "LSTM", "config": {"recurrent_activation": "hard_sigmoid"}}
    with h5py.File("model.h5", "a") as file:
        file.attrs["model_config"] = json.dumps({"config": {"layers": [layer]}})
    with pytest.raises(RunError, match="recurrent_activation='hard_sigmoid' is not imported, only 'sigmoid'"):
        read_weights("model.h5")
    Path("bad.h5").write_bytes(b"\x89HDF nothing")
    with pytest.raises(RunError, match="not a Keras model"):
        read_weights("bad.h5")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Keras with NumPy 2
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_files_that_keras_writes(kind: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    layer = getattr(keras.layers, kind)
    layers = [
        keras.layers.Embedding(11, 6),
        keras.layers.Bidirectional(layer(8, return_sequences=True)),
        keras.layers.Bidirectional(layer(8, return_sequences=True)),
        keras.layers.Dense(11),
    ]
    model = keras.Sequential([keras.layers.Input((None,), dtype="int32"), *layers])
    rng = np.random.default_rng(0)
    for value in model.variables:
        value.assign(rng.normal(size=value.shape))
    ids = rng.integers(0, 11, (3, 7))
    model.save("model.keras")
    found = read_weights("model.keras")
    assert found.embedding is not None
    assert found.output is not None
    states = found.recurrent()(found.embedding[torch.tensor(ids)]).outputs
    wanted = torch.as_tensor(np.asarray(model(ids).detach()))
    torch.testing.assert_close(states @ found.output[0].t() + found.output[1], wanted)


def test_special_tokens_keep_their_probability(here: Path) -> None:
    """A model with <unk> and <eos> predicts them; only those that it does not have get 0."""
    tokens = ["<unk>", "<eos>", *"abcdefgh"]
    torch.manual_seed(0)
    model = CharModel("lstm", len(tokens))
    torch.save(model.state_dict(), "model.pt")
    import_run("model.pt", "run", vocab=tokens)
    found = recur.load("run").step("a")[0]
    expected = model(torch.tensor([[2]]))[0, 0].softmax(-1).tolist()
    for name, p in zip(tokens, expected, strict=True):
        assert found[name] == pytest.approx(p, rel=1e-5)
    assert found["<pad>"] == found["<bos>"] == 0


@pytest.mark.parametrize(
    "written", [b"alpha\r\nbeta\r\n[MASK]\r\n", b"\xef\xbb\xbfalpha\nbeta\n[MASK]\n", b"[MASK]\nalpha\nbeta\n"]
)
def test_lists_of_tokens_as_programs_write_them(written: bytes, here: Path) -> None:
    """Windows line ends, a byte-order mark, and a first token that looks like JSON."""
    model = nn.ModuleDict({"embedding": nn.Embedding(3, 2), "rnn": nn.LSTM(2, 4), "out": nn.Linear(4, 3)})
    torch.save(model.state_dict(), "model.pt")
    Path("words.txt").write_bytes(written)
    run = import_run("model.pt", "run", vocab="words.txt", token="word")
    assert {*run.vocabs["vocab"].tokens} == {*SPECIALS, "alpha", "beta", "[MASK]"}


def test_a_run_has_all_weights_of_the_model(here: Path) -> None:
    """A layer norm that is left out would change every prediction."""
    model = CharModel("gru", len(LETTERS))
    torch.save(model.state_dict() | {"norm.weight": torch.ones(7), "norm.bias": torch.zeros(7)}, "model.pt")
    assert read_weights("model.pt").ignored == ["norm.weight", "norm.bias"]
    with pytest.raises(RunError, match="weights besides .*: norm.weight, norm.bias"):
        import_run("model.pt", "run", vocab=LETTERS)


@pytest.mark.parametrize(
    "found",
    [
        {"weight_ih_l0": torch.zeros(8, 3), "weight_hh_l0": torch.zeros(8)},
        {"weight_ih_l0": torch.tensor(1.0), "weight_hh_l0": torch.zeros(8, 2)},
        {"weight_ih_l0": torch.zeros(8, 3), "weight_hh_l0": torch.zeros(8, 2, dtype=torch.complex64)},
    ],
)
def test_tensors_of_wrong_kinds(found: dict[str, torch.Tensor], here: Path) -> None:
    torch.save(found, "model.pt")
    with pytest.raises(RunError, match="must be"):
        read_weights("model.pt")


def test_an_array_that_inflates(here: Path) -> None:
    """A terabyte that was never written takes a few bytes of an HDF5 file."""
    h5py = pytest.importorskip("h5py")
    with h5py.File("model.h5", "w") as file:
        file.create_dataset("rnn/cell/0", shape=(1 << 18, 1 << 20), dtype="f4", chunks=(256, 256), compression="gzip")
    with pytest.raises(RunError, match="inflates to more than"):
        read_weights("model.h5")
