"""Contexts by their equations, written out step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from recur.cells import cell_names
from recur.errors import OptionError, ShapeError
from recur.nn import Conditioned
from tests.support import close

B, T, D, H, C = 3, 5, 4, 6, 7
DOUBLE = torch.float64


def parts(way: str) -> tuple[Tensor, Tensor]:
    x = torch.randn(B, T, D, dtype=DOUBLE)
    return x, torch.randn(*((B, T, C) if way == "aligned" else (B, C)), dtype=DOUBLE)


@pytest.mark.parametrize("way", ["none", "initial", "input", "both", "aligned"])
def test_every_way_by_hand(way: str) -> None:
    """h_t = tanh(U x_t + R c + b + W h_{t−1} + b_h), and h_0 of the context if it has that way."""
    net = Conditioned("elman", D, H, C, way).double()
    x, context = parts(way)
    w = net.recurrent.weights()
    U, R = w["weight_ih"][:, :D], w["weight_ih"][:, D:]
    assert R.shape == (H, C if way in ("input", "both", "aligned") else 0)
    h = torch.zeros(B, H, dtype=DOUBLE)
    if way in ("initial", "both"):
        assert net.bridge is not None
        h = torch.tanh(context @ net.bridge.weight.T + net.bridge.bias)
    outputs = []
    for t in range(T):
        a = x[:, t] @ U.T + w["bias_ih"] + h @ w["weight_hh"].T + w["bias_hh"]
        if way in ("input", "both"):
            a = a + context @ R.T
        if way == "aligned":
            a = a + context[:, t] @ R.T
        h = torch.tanh(a)
        outputs.append(h)
    close(net(x, context).outputs.detach(), torch.stack(outputs, 1).detach())


@pytest.mark.parametrize("cell", cell_names())
@pytest.mark.parametrize("way", ["both", "aligned"])
def test_single_steps_and_pieces_give_the_same(cell: str, way: str) -> None:
    net = Conditioned(cell, D, H, C, way, num_layers=2).double().eval()  # without noise
    x, context = parts(way)
    whole = net(x, context)
    state = None
    for t in range(T):
        out, state = net.step(x[:, t], context[:, t] if way == "aligned" else context, state)
        close(out, whole.outputs[:, t].detach())
    first = net(x[:, :2], context[:, :2] if way == "aligned" else context)
    rest = net(x[:, 2:], context[:, 2:] if way == "aligned" else context, first.state)
    close(rest.outputs.detach(), whole.outputs[:, 2:].detach())


def test_every_state_of_every_layer_starts_from_the_context() -> None:
    net = Conditioned("lstm", D, H, C, "initial", num_layers=2).double()
    state = net.start(torch.randn(B, C, dtype=DOUBLE))
    assert state is not None
    assert [part.shape for layer in state for part in layer] == [(B, H)] * 4
    assert len({round(part.abs().sum().item(), 9) for layer in state for part in layer}) == 4


def test_what_does_not_fit() -> None:
    with pytest.raises(OptionError, match="unknown condition 'inital'; did you mean 'initial'"):
        Conditioned("gru", D, H, C, "inital")
    with pytest.raises(OptionError, match="needs direction='forward'"):
        Conditioned("gru", D, H, C, "input", direction="both")
    net = Conditioned("gru", D, H, C, "aligned")
    with pytest.raises(ShapeError, match="as many steps as the inputs, 5; got"):
        net(torch.randn(B, T, D), torch.randn(B, T - 1, C))
