"""Models that were saved whole, opened with weights_only=True: no cells of a user's own, unless they are named."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import recur
from recur import nn as rnn
from recur.cells import Cell, cell_names
from recur.nn import Connections, Depth, Dropout, Init
from recur.utils.imports import LOADABLE

KINDS = ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell")
K, D = 7, 5


class Words(nn.Module):
    """A language model over words: embedding, recurrence, and an output that shares the embedding's weights."""

    def __init__(self, recurrence: nn.Module) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(K, D)
        self.recurrence = recurrence
        self.decoder = nn.Linear(D, K)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens: Tensor) -> Tensor:
        out: Any = self.recurrence(self.drop(self.encoder(tokens)))
        out = out[0] if isinstance(out, tuple) else out
        scores: Tensor = self.decoder(out)
        return scores


THEIRS = [Words, nn.Dropout, nn.Embedding, nn.Linear]
"""What a user names: a class of their own, and those of torch.nn."""


def opened(model: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with torch.serialization.safe_globals(THEIRS):  # type: ignore[arg-type]
        return torch.load(file, weights_only=True)


def same(got: Any, expected: Any, tokens: Tensor) -> None:
    assert torch.equal(got(tokens), expected(tokens))
    assert got.decoder.weight is got.encoder.weight, "tied weights come back tied"
    assert str(got) == str(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_saved_whole_opens_with_weights_only(kind: str) -> None:
    layers = {} if kind.endswith("Cell") else {"num_layers": 2, "dropout": 0.1}
    model = Words(getattr(rnn, kind)(D, D, **layers))
    tokens = torch.randint(K, (4,) if kind.endswith("Cell") else (6, 4))
    model(tokens).sum().backward()  # what a forward and a backward pass leave behind is saved too
    torch.optim.SGD(model.parameters(), 0.1).step()
    model.eval()
    same(opened(model), model, tokens)
    same(opened(copy.deepcopy(model)), model, tokens)
    same(copy.deepcopy(opened(model)), model, tokens)


@pytest.mark.parametrize("name", cell_names())
def test_a_network_of_every_cell_opens(name: str) -> None:
    net = recur.Recurrent(name, D, 4, num_layers=2, direction="both", init=Init("orthogonal"), bptt="truncated:2")
    x = torch.randn(3, 4, D)
    net(x).outputs.sum().backward()
    net.eval()  # some cells draw noise in training
    again = opened(net)
    assert torch.equal(again(x).outputs, net(x).outputs)
    assert vars(again).keys() == vars(net).keys()
    assert str(again) == str(net)
    assert (again.bptt, again.init, again.backend) == (net.bptt, net.init, net.backend)
    assert torch.equal(copy.deepcopy(again)(x).outputs, net(x).outputs)
    assert again.weight_ih_l0.requires_grad


def test_every_option_of_a_network_opens() -> None:
    options = {
        "dropout": Dropout(0.1, weights=0.2),
        "connections": Connections("sum", residual=True),
        "depth": Depth(transition=1, output=0),
        "projection": 0,
        "init": Init("identity:0.5", state="learned"),
    }
    net = recur.Recurrent("gru", D, D, num_layers=2, direction="both", **options).eval()
    x = torch.randn(2, 3, D)
    assert torch.equal(opened(net)(x).outputs, net(x).outputs)
    projected = rnn.LSTM(D, 6, proj_size=2, backend="loop")
    assert torch.equal(opened(projected)(x)[0], projected(x)[0])


class Mine(Cell):
    """h' = x_h + h"""

    gates = ("h",)
    state_gates = ()

    def step(self, x: Any, h: Any, s: Any) -> Any:
        return (x.h + s.h,)


class Subclass(rnn.LSTM):
    pass


def test_what_is_not_ours_is_not_trusted() -> None:
    for module in (recur.Recurrent(Mine(), D, 4), Subclass(D, 4)):
        with pytest.raises(pickle.UnpicklingError, match="Unsupported global: GLOBAL tests.test_trusted"):
            opened(module)
    with torch.serialization.safe_globals([Mine]):  # with a word of the user's
        assert isinstance(opened(recur.Recurrent(Mine(), D, 4)).cell, Mine)


class Calls:
    """What a hostile file may hold: a call of something by name, with arguments of its own."""

    def __init__(self, function: Any, *args: object) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def trusted() -> list[Any]:
    """All of ours that torch may call."""
    found = [entry[0] if isinstance(entry, tuple) else entry for entry in torch.serialization.get_safe_globals()]
    return [one for one in found if one.__module__.startswith("recur.")]


def test_a_file_cannot_have_a_cells_file_executed(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    name = f"{tmp_path / 'evil.py'}:Evil"
    for function in (recur.Recurrent, recur.make_cell):
        file = io.BytesIO()
        torch.save(Calls(function, name, D, 4), file)
        file.seek(0)
        with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
            torch.load(file, weights_only=True)
    assert len(trusted()) > 20
    for function in trusted():
        file = io.BytesIO()
        torch.save(Calls(function, name), file)
        file.seek(0)
        with contextlib.suppress(TypeError, ValueError, AttributeError):  # refused by the constructor, or no network
            torch.load(file, weights_only=True)
    assert not (tmp_path / "ran").exists()


def test_a_network_saved_before_there_were_projections_opens() -> None:
    x, net = torch.randn(2, 3, D), recur.Recurrent("lstm", D, 4, num_layers=2)
    expected = net(x)[0]
    for later in ("projection", "state_widths"):
        del vars(net)[later]
    assert torch.equal(pickle.loads(pickle.dumps(net))(x)[0], expected)
    assert torch.equal(opened(net)(x)[0], expected)


@pytest.mark.parametrize(
    "first",
    [
        "import recur, importlib.util; importlib.util.find_spec('torch'); import torch",  # looking is not importing
        "import torch, recur",
        "from recur.cells import LSTM; import torch",
    ],
)
def test_import_recur_is_enough(first: str, tmp_path: Path) -> None:
    """In whatever order, in a process of its own; what torch trusts is imported when it is asked for."""
    torch.save(rnn.GRU(D, 4), tmp_path / "gru.pt")
    code = f"""
{first}, sys
assert "recur.nn.drop_in" not in sys.modules
net = torch.load({str(tmp_path / "gru.pt")!r}, weights_only=True)
assert type(net).__module__ == "recur.nn.drop_in"
assert not [finder for finder in sys.meta_path if type(finder).__module__ == "recur.utils.imports"]
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_names_that_are_trusted_exist() -> None:
    found = torch.serialization.get_safe_globals()
    names = {entry[1]: entry[0] for entry in found if isinstance(entry, tuple)}  # type: ignore[index]
    for module, group in LOADABLE.items():
        for name in group:
            assert names[f"{module}.{name}"] is getattr(sys.modules[module], name)
