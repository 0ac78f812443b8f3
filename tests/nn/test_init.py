"""How weights start: each scheme by the property it is named for."""

from __future__ import annotations

import pytest
import torch

from recur.cells import make_cell
from recur.nn import Depth, Init, Recurrent
from recur.nn.functional import initialise
from tests.support import DOUBLE, close

I = torch.eye(6, **DOUBLE)


def test_orthogonal_blocks() -> None:
    net = Recurrent("lstm", 4, 6, init="orthogonal", **DOUBLE)
    for block in net.weight_hh_l0.chunk(4):
        close(block @ block.T, I)
    assert (net.bias_ih_l0 == 0).all()
    # The norm of its powers stays 1: the reason to want it.
    power = torch.linalg.matrix_power(net.weight_hh_l0.chunk(4)[0].detach(), 500)
    close(torch.linalg.matrix_norm(power, 2), torch.ones((), **DOUBLE))


def test_a_recurrent_matrix_by_another_name_is_orthogonal_too() -> None:
    net = Recurrent("gru2014", 4, 6, init="orthogonal", **DOUBLE)
    close(net.W_n_l0 @ net.W_n_l0.T, I)


@pytest.mark.parametrize(("scheme", "scale"), [("identity", 1.0), ("identity:0.1", 0.1)])
def test_identity_blocks(scheme: str, scale: float) -> None:
    net = Recurrent("elman-relu", 400, 6, init=scheme, **DOUBLE)
    close(net.weight_hh_l0.detach(), scale * I)
    assert abs(net.weight_ih_l0.std().item() - 0.001) < 1e-4
    assert (net.bias_hh_l0 == 0).all()


def test_an_irnn_carries_its_input_unchanged() -> None:
    net = Recurrent("elman-relu", 1, 6, init="identity", **DOUBLE)
    with torch.no_grad():
        net.weight_ih_l0.fill_(0.5)
    x = torch.zeros(1, 100, 1, **DOUBLE)
    x[0, 0] = 1
    close(net(x).outputs[0, -1], torch.full((6,), 0.5, **DOUBLE))


def test_glorot_scales_to_the_widths_of_each_block() -> None:
    net = Recurrent("lstm", 50, 100, init="glorot", **DOUBLE)
    for matrix, width in ((net.weight_ih_l0, 50), (net.weight_hh_l0, 100)):
        bound = (6 / (100 + width)) ** 0.5
        assert matrix.abs().max() <= bound
        assert matrix.abs().max() > 0.98 * bound
        assert abs(matrix.std().item() - bound / 3**0.5) < 0.02 * bound


def test_the_cells_own_weights_start_as_the_cell_says() -> None:
    u = Recurrent("indrnn", 4, 2000, **DOUBLE).u_l0
    assert u.min() >= 0
    assert u.max() <= 1
    assert abs(u.mean().item() - 0.5) < 0.03
    deep = Recurrent("leaky", 4, 6, depth=Depth(transition=1), **DOUBLE)
    close(deep.a_l0.detach(), Recurrent("leaky", 4, 6, **DOUBLE).a_l0.detach())


def test_normal() -> None:
    net = Recurrent("elman", 100, 100, init="normal:0.01", **DOUBLE)
    assert abs(net.weight_hh_l0.std().item() - 0.01) < 5e-4
    assert (net.bias_ih_l0 == 0).all()


@pytest.mark.parametrize(
    ("cell", "gate", "gates"), [("lstm", 1, 4), ("peephole", 1, 4), ("gru", 1, 3), ("gru2014", 1, 3)]
)
def test_a_forget_bias_goes_to_the_forget_gate(cell: str, gate: int, gates: int) -> None:
    net = Recurrent(cell, 4, 6, init=Init("glorot", forget_bias=1.5), direction="both", **DOUBLE)
    for suffix in ("_l0", "_l0_reverse"):
        weights = net.weights(suffix)
        for k, block in enumerate(weights["bias_ih"].chunk(gates)):
            assert (block == (1.5 if k == gate else 0.0)).all()
        assert (weights["bias_hh"] == 0).all()


@pytest.mark.parametrize(
    ("cell", "forget", "letting_in"),
    [("lstm", 1, 0), ("gru", 1, None), ("mingru", None, 0), ("minlstm", 0, 1), ("slstm", 1, None), ("mgu", None, 0)],
)
def test_chrono_spreads_times_evenly(cell: str, forget: int | None, letting_in: int | None) -> None:
    """τ = 1 / (1 − σ(b)) = 1 + eᵇ is uniform in 2 … T: by its ends and its mean."""
    H, T = 4000, 1000
    made = make_cell(cell)
    weights = {name: torch.empty(shape) for name, shape in made.shapes(1, H).items() if name.startswith("bias")}
    weights |= {"weight_ih": torch.empty(len(made.gates) * H, 1)}
    initialise(made, weights, "glorot", chrono=T)
    blocks = weights["bias_ih"].chunk(len(made.gates))
    for k, block in enumerate(blocks):
        if k not in (forget, letting_in):
            assert (block == 0).all()
            continue
        kept = 1 / torch.sigmoid(block if k == letting_in else -block).double()
        assert 2 <= kept.min() < 5
        assert 995 < kept.max() < T + 0.1
        assert abs(kept.mean() - (T + 2) / 2) < 4 * (T - 2) / 12**0.5 / H**0.5
    if forget is not None and letting_in is not None:
        assert torch.equal(blocks[forget], -blocks[letting_in])
    assert (weights.get("bias_hh", torch.zeros(1)) == 0).all()


def test_a_forget_bias_over_torchs_own_start() -> None:
    net = Recurrent("lstm", 4, 6, init=Init(forget_bias=2.0), **DOUBLE)
    total = (net.bias_ih_l0 + net.bias_hh_l0).chunk(4)
    assert (total[1] == 2).all()
    assert (total[0] != 0).all()
