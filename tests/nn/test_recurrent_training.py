"""Recurrent in training: dropout of layers, state and weights, and where sequences start."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recur.nn import Dropout, Init, Recurrent
from tests.nn.test_recurrent import B, H, T, inputs, layer
from tests.support import DOUBLE, close


def test_dropout_is_off_outside_training() -> None:
    wild = {"dropout": Dropout(0.5, state=0.5, weights=0.5), "init": Init(state="random:1.0")}
    net = layer("lstm", num_layers=2, **wild).eval()
    plain = layer("lstm", num_layers=2)
    plain.load_state_dict(net.state_dict())
    x = inputs()
    assert torch.equal(net(x).outputs, plain(x).outputs)
    net.train()
    assert not torch.equal(net(x).outputs, net(x).outputs)


@pytest.mark.parametrize("variational", [True, False])
def test_dropout_between_layers(variational: bool) -> None:
    # A second layer that copies its input shows the mask: h' = ReLU(x) with weight_ih = I.
    net = Recurrent("indrnn", H, H, num_layers=2, dropout=Dropout(0.4, variational=variational), **DOUBLE)
    with torch.no_grad():
        for suffix in ("_l0", "_l1"):
            weights = net.weights(suffix)
            nn.init.eye_(weights["weight_ih"])
            weights["bias_ih"].zero_()
            weights["u"].zero_()
    kept = net(torch.ones(200, T, H, **DOUBLE)).outputs
    assert set(kept.unique().tolist()) == {0.0, 1 / 0.6}
    assert abs((kept > 0).double().mean().item() - 0.6) < 0.05
    same_at_every_step = bool((kept == kept[:, :1]).all())
    assert same_at_every_step is variational


def test_dropout_of_the_state_is_one_mask_a_sequence() -> None:
    # h' = x + m ⊙ h with W = I: h_1 = 1, and h_T counts the steps a unit remembers.
    net = Recurrent("elman-relu", H, H, dropout=Dropout(state=0.5), bias=False, **DOUBLE)
    with torch.no_grad():
        nn.init.eye_(net.weight_ih_l0)
        nn.init.eye_(net.weight_hh_l0)
    outputs = net(torch.ones(100, 4, H, **DOUBLE)).outputs
    dropped, kept = torch.ones(4, **DOUBLE), torch.tensor([1.0, 3, 7, 15], **DOUBLE)
    paths = outputs.transpose(1, 2).reshape(-1, 4)
    is_kept = (paths == kept).all(1)
    assert (is_kept | (paths == dropped).all(1)).all()
    assert abs(is_kept.double().mean().item() - 0.5) < 0.1


def test_dropout_of_weights_acts_on_entries_of_w() -> None:
    net = Recurrent("elman-relu", 1, 40, dropout=Dropout(weights=0.25), bias=False, **DOUBLE)
    with torch.no_grad():
        net.weight_ih_l0.fill_(1)
        nn.init.eye_(net.weight_hh_l0)
    last = net(torch.ones(2, 2, 1, **DOUBLE)).outputs[:, 1]
    assert set(last.unique().tolist()) == {1.0, 1 + 1 / 0.75}
    assert torch.equal(last[0], last[1]), "one mask for the whole batch: it is the weights' own"
    net(torch.ones(2, 2, 1, **DOUBLE)).outputs.sum().backward()
    assert net.weight_hh_l0.grad is not None


def test_dropout_masks_differ_between_rows_also_when_packed() -> None:
    net = Recurrent("elman-relu", H, H, dropout=Dropout(state=0.5), bias=False, **DOUBLE)
    with torch.no_grad():
        nn.init.eye_(net.weight_ih_l0)
        nn.init.eye_(net.weight_hh_l0)
    outputs = net(torch.ones(50, 4, H, **DOUBLE), lengths=[2 + b % 3 for b in range(50)]).outputs
    kept = outputs[:, 1] == 3  # 1 + 2 · 1 for a unit that remembers, 1 for one that does not
    assert len(kept.unique(dim=0)) > 10, "rows have masks of their own"


def test_dropout_with_one_layer_warns_that_it_has_no_effect() -> None:
    with pytest.warns(UserWarning, match="there is one layer"):
        layer("gru", dropout=0.5)


# Initial states -------------------------------------------------------------------------------------------


def test_a_learned_initial_state_is_a_parameter_that_learns() -> None:
    net = layer("lstm", num_layers=2, direction="both", init=Init(state="learned"))
    names = {name for name, _ in net.named_parameters() if "0_l" in name}
    assert names == {f"{s}0_l{k}{d}" for s in "hc" for k in (0, 1) for d in ("", "_reverse")}
    net(inputs()).outputs.sum().backward()
    assert all(getattr(net, name).grad.abs().sum() > 0 for name in names)


def test_a_reset_returns_to_the_learned_state() -> None:
    net = layer("gru", init=Init(state="learned"))
    with torch.no_grad():
        net.h0_l0.normal_()
    x = inputs()
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[:, 3] = True
    carried = [torch.randn(B, H, **DOUBLE)]
    close(net(x, [carried], reset=reset).outputs[:, 3:], net(x[:, 3:]).outputs)


def test_a_random_start_has_the_scale_it_was_given() -> None:
    for sigma in (0.02, 0.3):
        net = Recurrent("elman", 1, 400, init=Init(state=f"random:{sigma}"), bias=False, **DOUBLE)
        with torch.no_grad():
            net.weight_ih_l0.zero_()
            nn.init.eye_(net.weight_hh_l0)
        h0 = torch.atanh(net(torch.zeros(20, 1, 1, **DOUBLE)).outputs)
        assert abs(h0.std().item() / sigma - 1) < 0.05
        assert (net.eval()(torch.zeros(20, 1, 1, **DOUBLE)).outputs == 0).all()


def test_a_learned_state_starts_at_zero() -> None:
    net = layer("lstm", init=Init(state="learned"))
    assert (net.h0_l0 == 0).all()
    assert (net.c0_l0 == 0).all()
