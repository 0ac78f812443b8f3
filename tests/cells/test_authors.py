"""Cells against their authors' own code, weights carried over: outputs, final states and gradients, several steps."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from recur.cells import Cell, make_cell
from recur.ops import scan
from tests.support import DOUBLE, HERE, close

B, T, D, H = 3, 7, 6, 6


def ours(cell: Cell, weights: dict[str, Tensor], x: Tensor, state: Any, backend: str) -> tuple[Tensor, Any]:
    """With biases of zero, where the authors have none."""
    for name, shape in cell.shapes(x.shape[-1], weights["weight_ih"].shape[0] // len(cell.gates)).items():
        weights.setdefault(name, torch.zeros(shape, **DOUBLE))
    outputs, final, _ = scan(cell, weights, x, state, backend=backend)
    return outputs, final


def compare(got: list[Tensor], expected: list[Tensor], leaves: list[Tensor], tolerance: float | None = None) -> None:
    """Values, and the gradients of a loss in which every number counts differently."""
    torch.manual_seed(1)
    pulls = [torch.randn_like(part) for part in expected]
    gradients = []
    for parts in (got, expected):
        loss = sum((part * pull).sum() for part, pull in zip(parts, pulls, strict=True))
        gradients.append(torch.autograd.grad(loss, leaves))
    for a, b in zip(got, expected, strict=True):
        close(a, b)
    for k, (a, b) in enumerate(zip(*gradients, strict=True)):
        assert b.abs().max() > 0
        close(a, b, f"gradient {k}", tolerance)


CPU = [backend for backend in HERE if backend != "torch"]


@pytest.mark.parametrize("backend", CPU)
@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 15.0], ids=["", "large gates"])
def test_slstm(heads: int, scale: float, backend: str) -> None:
    vanilla = pytest.importorskip("xlstm.blocks.slstm.src.vanilla")
    head = H // heads
    x = torch.randn(B, T, D, requires_grad=True, **DOUBLE)
    U = (scale * torch.randn(4 * H, D, **DOUBLE)).requires_grad_()
    R = torch.randn(heads, 4 * head, head, requires_grad=True, **DOUBLE)  # of every head, its four gates
    b = torch.randn(4 * H, requires_grad=True, **DOUBLE)
    every, last, _ = vanilla.slstm_forward(
        (x @ U.T).transpose(0, 1),
        torch.zeros(4, B, H, **DOUBLE),
        R,
        b,
        vanilla.slstm_pointwise_function_registry["slstm"],
    )
    by_gate = R.unflatten(1, (4, head)).transpose(0, 1).reshape(4 * H, head)
    outputs, final = ours(
        make_cell("slstm", heads=heads), {"weight_ih": U, "weight_hh": by_gate, "bias_ih": b}, x, None, backend
    )
    compare([outputs, *final], [every[0, 1:].transpose(0, 1), *last], [x, U, R, b])


@pytest.mark.parametrize("backend", CPU)
@pytest.mark.parametrize("start", [False, True], ids=["from zero", "from a state"])
def test_mingru(start: bool, backend: str) -> None:
    package = pytest.importorskip("minGRU_pytorch.minGRU")
    theirs = package.minGRU(D).double()
    x = torch.randn(B, T, D, requires_grad=True, **DOUBLE)
    h0 = torch.rand(B, D, requires_grad=True, **DOUBLE) + 0.1 if start else None
    weight = theirs.to_hidden_and_gate.weight
    hidden, gate = weight.chunk(2)
    expected = theirs(x, None if h0 is None else h0[:, None])
    outputs, final = ours(make_cell("mingru", positive=True), {"weight_ih": torch.cat([gate, hidden])}, x, h0, backend)
    close(final.h, expected[:, -1])
    compare([outputs], [expected], [x, weight, *([] if h0 is None else [h0])])


@pytest.mark.parametrize("backend", CPU)
def test_minlstm(backend: str) -> None:
    package = pytest.importorskip("minGRU_pytorch.minLSTM")
    theirs = package.minLSTM(D).double()
    x = torch.randn(B, T, D, requires_grad=True, **DOUBLE)
    weight = theirs.to_hidden_and_f_i_gate.weight
    hidden, forget, into = weight.chunk(3)
    mapped = {"weight_ih": torch.cat([forget, into, hidden])}
    outputs, final = ours(make_cell("minlstm", positive=True), dict(mapped), x, None, backend)
    expected = theirs(x)
    close(final.h, expected[:, -1])
    compare([outputs], [expected], [x, weight])
    # One step at a time theirs goes on from a state, in another form.
    h = torch.rand(B, D, requires_grad=True, **DOUBLE)
    outputs, _ = ours(make_cell("minlstm", positive=True), dict(mapped), x[:, :1], h, backend)
    compare([outputs], [theirs(x[:, :1], h[:, None])], [x, weight, h])


@pytest.fixture(scope="module")
def sru() -> Any:
    """The package without its compiled parts, which the pure recurrence does not use."""
    pytest.importorskip("ninja", reason="sru is not installed")
    with (
        mock.patch("torch.utils.cpp_extension.load"),
        mock.patch("torch.jit.script", lambda function: function),
    ):
        return pytest.importorskip("sru")


@pytest.mark.filterwarnings("ignore:Running SRU on CPU")
@pytest.mark.parametrize("backend", CPU)
@pytest.mark.parametrize("bias", [0.0, -1.5])
@pytest.mark.parametrize("width", [D, 4], ids=["D = H", "D ≠ H"])
@pytest.mark.parametrize("peephole", [True, False])
def test_sru(sru: Any, peephole: bool, width: int, bias: float, backend: str) -> None:
    theirs = sru.SRUCell(D, width, highway_bias=bias, v1=not peephole).double()
    cell = make_cell("sru", peephole=peephole, highway_bias=bias)
    alpha = (1 + 2 * torch.tensor(bias, **DOUBLE).exp()).sqrt()
    theirs.scale_x.copy_(alpha)  # drawn in float32
    x = torch.randn(B, T, D, requires_grad=True, **DOUBLE)
    c0 = torch.randn(B, width, requires_grad=True, **DOUBLE)
    torch.nn.init.normal_(theirs.bias)
    blocks = theirs.weight.unflatten(1, (width, -1)).permute(2, 1, 0)  # (3 or 4, H, D)
    skip = blocks[3] / alpha if len(blocks) == 4 else torch.eye(D, **DOUBLE)
    nothing = torch.zeros(width, **DOUBLE)
    weights = {
        "weight_ih": torch.cat([*blocks[:3], skip]),
        "bias_ih": torch.cat([nothing, theirs.bias, nothing]),
    }
    leaves = [x, c0, theirs.weight, theirs.bias]
    if peephole:
        weights |= dict(zip(("v_f", "v_r"), theirs.weight_c.chunk(2), strict=True))
        leaves.append(theirs.weight_c)
    outputs, final = ours(cell, weights, x, (torch.zeros_like(c0), c0), backend)
    expected, last = theirs(x.transpose(0, 1), c0)
    compare([outputs, final.c], [expected.transpose(0, 1), last], leaves)


def test_lnlstm_by_hand() -> None:
    """Each sum is normalised over all gates before the LSTM's own step, and c before its output."""
    cell = make_cell("lnlstm")
    shapes = cell.shapes(D, H)
    weights = {name: torch.randn(shape, requires_grad=True, **DOUBLE) for name, shape in shapes.items()}
    x = torch.randn(B, T, D, requires_grad=True, **DOUBLE)
    h = c = torch.zeros(B, H, **DOUBLE)
    seen = []
    for t in range(T):
        u = layer_norm(x[:, t] @ weights["weight_ih"].T + weights["bias_ih"], [4 * H], weights["a_x"].view(-1))
        w = layer_norm(h @ weights["weight_hh"].T + weights["bias_hh"], [4 * H], weights["a_h"].view(-1))
        i, f, g, o = (u + w + weights["b"].view(-1)).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * layer_norm(c, [H], weights["a_c"], weights["b_c"]).tanh()
        seen.append(h)
    outputs, final, _ = scan(cell, weights, x)
    compare([outputs, final.c], [torch.stack(seen, 1), c], [x, *weights.values()])


@pytest.mark.parametrize("mode", ["default", "no_gate"])
@pytest.mark.parametrize("backend", CPU)
def test_cfc(mode: str, backend: str) -> None:
    package = pytest.importorskip("ncps.torch.cfc_cell")
    theirs = package.CfCCell(D, H, mode=mode, backbone_units=H, backbone_layers=1).double()
    x, dt = torch.randn(B, T, D, requires_grad=True, **DOUBLE), torch.rand(B, T, requires_grad=True, **DOUBLE)
    backbone = theirs.backbone[0]
    weights = {"weight_ih": backbone.weight[:, :D], "weight_hh": backbone.weight[:, D:], "bias_ih": backbone.bias}
    weights["bias_hh"] = torch.zeros(H, **DOUBLE)
    for name, linear in zip("FGAB", (theirs.ff1, theirs.ff2, theirs.time_a, theirs.time_b), strict=True):
        weights |= {name: linear.weight, f"k_{name.lower()}": linear.bias}
    h, expected = torch.zeros(B, H, **DOUBLE), []
    for t in range(T):
        h, _ = theirs(x[:, t], h, dt[:, t : t + 1])
        expected.append(h)
    found = scan(make_cell("cfc", mode=mode), weights, x, inputs={"dt": dt}, backend=backend)
    compare([found.outputs], [torch.stack(expected, 1)], [x, dt, *theirs.parameters()])


@pytest.mark.parametrize("unfolds", [1, 6])
def test_ltc(unfolds: int) -> None:
    package, wirings = pytest.importorskip("ncps.torch.ltc_cell"), pytest.importorskip("ncps.wirings")
    wiring = wirings.FullyConnected(H)
    wiring.build(D)
    theirs = package.LTCCell(wiring, D, ode_unfolds=unfolds, implicit_param_constraints=True).double()
    x, dt = torch.randn(B, T, D, requires_grad=True, **DOUBLE), (torch.rand(B, T, **DOUBLE) + 0.1).requires_grad_()
    cell, given = make_cell("ltc", unfolds=unfolds), dict(theirs._params.items())
    weights = {"weight_ih": torch.zeros(H, D, **DOUBLE), "bias_ih": torch.zeros(H, **DOUBLE)}
    weights |= {name: given[name] for name in cell.extras}
    v, expected = torch.zeros(B, H, **DOUBLE), []
    for t in range(T):
        v = theirs._ode_solver(x[:, t], v, dt[:, t : t + 1])
        expected.append(v)
    found = scan(cell, weights, x, inputs={"dt": dt})
    compare([found.outputs], [torch.stack(expected, 1)], [x, dt, *(weights[name] for name in cell.extras)])


@pytest.mark.parametrize("backend", CPU)
def test_lif_of_snntorch(backend: str) -> None:
    snntorch = pytest.importorskip("snntorch")
    theirs = snntorch.Leaky(beta=0.75, threshold=0.5, spike_grad=snntorch.surrogate.atan(alpha=2.0))
    x = torch.randn(B, T, H, requires_grad=True, **DOUBLE)
    v, spikes, potentials = torch.zeros(B, H, **DOUBLE), [], []
    for t in range(T):
        fired, v = theirs(x[:, t], v)
        spikes.append(fired.double())
        potentials.append(v)
    assert 0 < torch.stack(spikes).mean() < 1
    weights = {"weight_ih": torch.eye(H, **DOUBLE), "bias_ih": torch.zeros(H, **DOUBLE)}
    found = scan(make_cell("lif", decay=0.75, threshold=0.5), weights, x, backend=backend)
    compare([found.outputs, found.state.v], [torch.stack(spikes, 1), potentials[-1]], [x], 1e-6)  # theirs is in float32


@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("backend", CPU)
def test_lif_of_spikingjelly(detached: bool, backend: str) -> None:
    neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
    theirs = neuron.LIFNode(tau=4.0, v_threshold=0.5, detach_reset=detached)
    x = torch.randn(B, T, H, requires_grad=True, **DOUBLE)
    expected = torch.stack([theirs(2 * x[:, t]) for t in range(T)], 1)
    assert 0 < expected.mean() < 1
    cell = make_cell(
        "lif",
        decay=0.75,
        threshold=0.5,
        reset="zero",
        surrogate="sigmoid",
        decay_input=True,
        detach_reset=detached,
    )
    weights = {"weight_ih": 2 * torch.eye(H, **DOUBLE), "bias_ih": torch.zeros(H, **DOUBLE)}
    compare([scan(cell, weights, x, backend=backend).outputs], [expected], [x])
