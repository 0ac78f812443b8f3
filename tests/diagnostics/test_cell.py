"""`recur cell`: what it finds in good cells, and the line it has for each kind of bad one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import tanh

from recur.cells import Cell, make_cell
from recur.cli.app import run
from recur.diagnostics.cell_check import examine, kept_bytes, measure
from recur.nn import Recurrent
from tests.support import ALL_CELLS, core, needs_core

MINE = '''
import torch
from torch import sigmoid, tanh
from torch.nn.functional import linear
from recur import Cell


class LeakyGRU(Cell):
    gates = ("r", "z", "n")

    def step(self, x, h, s):
        r = sigmoid(x.r + h.r)
        z = sigmoid(x.z + h.z)
        n = tanh(x.n + r * h.n)
        return (0.5 * s.h + 0.5 * ((1 - z) * n + z * s.h),)


class Mixed(Cell):
    gates = ("h",)
    extras = {"M": ("H", "H")}
    pointwise = False

    def step(self, x, h, s, w):
        return (tanh(x.h + h.h + linear(tanh(s.h), w.M)),)


class Softmax(Cell):
    gates = ("h",)

    def step(self, x, h, s):
        return (torch.softmax(x.h + h.h, -1),)


class One(Cell):
    gates = ("h",)


class Narrow(One):
    def step(self, x, h, s):
        return (tanh(x.h + h.h)[:, :1],)


class NaN(One):
    """The way that is not taken has no slope, and 0 times that is no number."""

    def step(self, x, h, s):
        a = tanh(x.h + h.h)
        return (torch.where(a > 2, torch.sqrt(a - 2), a),)


class InPlace(One):
    def step(self, x, h, s):
        s.h.mul_(0.5)
        return (tanh(x.h + h.h) + s.h,)


class InPlaceShare(One):
    def step(self, x, h, s):
        x.h.add_(1)
        return (tanh(x.h + h.h),)


class Raises(One):
    def step(self, x, h, s):
        return (x.h @ h.h,)


class Unnamed(One):
    def step(self, x, h, s):
        return (x.g + h.h,)


class Dice(One):
    def step(self, x, h, s):
        return (tanh(x.h + h.h) + torch.rand(()),)


class Detached(One):
    def step(self, x, h, s):
        return ((x.h + h.h).detach(),)


class Infinite(One):
    def step(self, x, h, s):
        return (torch.exp(1000 + x.h + h.h),)


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sin(x)

    @staticmethod
    def backward(ctx, g):
        return g


class Wrong(One):
    def step(self, x, h, s):
        return (Sine.apply(x.h) + 0.5 * h.h,)


class Uninitialised(One):
    extras = {"p": ("H",)}

    def init_extras(self, weights):
        weights["p"].fill_(float("nan"))

    def step(self, x, h, s, w):
        return (tanh(x.h + h.h) * w.p,)


class Unfillable(Uninitialised):
    def init_extras(self, weights):
        weights["q"].zero_()
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)


def found(capsys: pytest.CaptureFixture[str], name: str) -> Any:
    assert run(["cell", name, "--no-speed", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    return json.loads(printed.out)


def test_a_pointwise_cell_of_ones_own(mine: None, capsys: pytest.CaptureFixture[str]) -> None:
    report = found(capsys, "mine.py:LeakyGRU")
    assert report["gradients"]["agree"]
    assert report["gradients"]["checked"].keys() == {"x", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "h0"}
    assert (report["pointwise"], report["affine"], report["projectable"]) == (True, False, False)
    assert "reads a product of W" in report["not_affine"]
    if core:
        assert (report["backends"]["native"], report["auto"]) == ("runs", "native")
    assert report["backends"]["loop"] == "runs"
    assert report["backends"]["torch"] == "torch.nn has no LeakyGRU()"
    assert "r = σ(x_r + h_r)" in report["equations"]
    assert "∂x_r = ∂h_r = ∂r ⊙ r ⊙ (1 − r)" in report["derivative"]
    assert 0.5 < report["flow"]["h"]["decay"] < 1
    assert report["parameters"]["count"] == 2 * 3 * 64 * 64 + 2 * 3 * 64


def test_a_cell_that_is_not_pointwise(mine: None, capsys: pytest.CaptureFixture[str]) -> None:
    for name, reason in (("Mixed", "Mixed has pointwise = False"), ("Softmax", "its step uses softmax")):
        report = found(capsys, f"mine.py:{name}")
        assert report["gradients"]["agree"]
        assert not report["pointwise"]
        assert reason in report["not_pointwise"]
        assert report["auto"] == ("native" if core and name == "Mixed" else "loop")
        assert report.get("stages") == (1 if name == "Mixed" else None)  # the two products do not wait for each other
        assert "equations" not in report


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Narrow", "Narrow.step must return (h,), each like the one before; h was a float64 tensor (2, 4)"),
        ("InPlace", "InPlace.step must return (h,) as new tensors; it changes the states it was given in place"),
        ("InPlaceShare", "InPlaceShare.step changes x.h in place; make new tensors"),
        ("Raises", "Raises.step raises RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x4 and 2x4)"),
        ("Unnamed", "Unnamed.step asks for x.g; its gates and inputs: h"),
        ("Dice", "Dice.step gives another h when it is called again"),
        ("Detached", "Detached.step returns nothing that has a gradient"),
        ("Infinite", "Infinite.step gives outputs that are no numbers, from its own start on"),
        ("Uninitialised", "Uninitialised starts with weights that are no numbers: p"),
        ("Unfillable", "Unfillable.init_extras raises KeyError: 'q'"),
        ("One", "One has no step; write step(self, x, h, s) -> (h,)"),
        ("Missing", "has no Cell named 'Missing'; its cells: LeakyGRU, Mixed"),
    ],
)
def test_a_cell_that_breaks_the_contract_is_one_line(
    name: str, message: str, mine: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cell", f"mine.py:{name}"]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NaN", "∂L/∂x, ∂L/∂weight_ih, ∂L/∂weight_hh, ∂L/∂bias_ih, ∂L/∂bias_hh: not a number, from the cell's own"),
        ("Wrong", "∂L/∂x, ∂L/∂weight_ih, ∂L/∂bias_ih: not that of central differences"),
    ],
)
def test_wrong_gradients_are_reported_and_refused(
    name: str, message: str, mine: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cell", f"mine.py:{name}", "--no-speed"]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert "gradients   WRONG" in printed.out


def test_the_screen_has_it_all(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.diagnostics.cell_check.SECONDS", 0.0)
    monkeypatch.setattr("recur.diagnostics.cell_check.SIZES", ((2, 3, 8),))
    assert run(["cell", "sru:peephole=False"]) == 0
    printed = capsys.readouterr().out
    for part in (
        "SRU(peephole=False",
        "agree with central differences",
        "affine      yes",
        "equations as read",
        "  f = σ(x_f)",
        "∂c = f ⊙ ∂c'",
        "2×3×8",
        "gradient flow of the untrained cell",
    ):
        assert part in printed
    assert run(["cell", "slstmm"]) == 2
    assert "did you mean 'slstm'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ALL_CELLS)
def test_every_registered_cell_passes(name: str) -> None:
    report = examine(make_cell(name), speed=False)
    assert report["gradients"]["agree"], report["gradients"]["problems"]
    assert not any("other numbers" in said for said in report["backends"].values())
    json.dumps(report, allow_nan=False)


def test_the_seed_decides_and_the_callers_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    first, second, other = (examine(make_cell("gru"), speed=False, seed=seed)["flow"] for seed in (0, 0, 1))
    assert first == second
    assert first != other
    assert torch.equal(torch.get_rng_state(), before)


class Kept(Cell):
    """h' = tanh(x_h + h_h): what autograd keeps of it is known."""

    gates = ("h",)

    def step(self, x: Any, h: Any, s: Any) -> Any:
        return (tanh(x.h + h.h),)


@needs_core
def test_what_is_kept_for_the_way_back_is_counted_once() -> None:
    """Of tanh alone its result: on the core every state once, and on the loop as many."""
    B, T, H = 2, 5, 8
    x = torch.randn(B, T, H)
    net = Recurrent(Kept(), H, H)
    states = B * T * H * 4
    assert kept_bytes(net, x) == states
    measured = measure(Kept(), B, T, H, seconds=0.0)
    assert measured.bytes == states
    assert measured.backend == "native"
    assert measured.ratio[0] <= measured.ratio[1]
    gru = kept_bytes(Recurrent("gru", H, H), x)
    assert gru == measured.gru_bytes
    assert gru == states * 5, "its state, three gates and one value more"
