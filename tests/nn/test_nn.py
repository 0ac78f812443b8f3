"""recur.nn against torch.nn: constructor, call, packed sequences, state dicts both ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

from recur import nn as rnn
from recur.errors import OptionError, ShapeError
from tests.support import DOUBLE, close

D, H = 4, 3
KINDS = ["RNN", "GRU", "LSTM"]


def pair(kind: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    """The same constructor, and the same weights for the same seed."""
    torch.manual_seed(5)
    theirs = getattr(nn, kind)(D, H, *args, **{**DOUBLE, **options})
    torch.manual_seed(5)
    ours = getattr(rnn, kind)(D, H, *args, **{**DOUBLE, **options})
    return theirs, ours


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, PackedSequence):
        close(ours.data, theirs.data)
        assert torch.equal(ours.batch_sizes, theirs.batch_sizes)
        for a, b in ((ours.sorted_indices, theirs.sorted_indices), (ours.unsorted_indices, theirs.unsorted_indices)):
            assert (a is None) == (b is None)
            assert a is None or torch.equal(a, b)
    elif isinstance(theirs, tuple):
        assert isinstance(ours, tuple)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    else:
        close(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_draws_the_same_weights(kind: str) -> None:
    theirs, ours = pair(kind, num_layers=2, bidirectional=True)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(theirs.parameters(), ours.parameters(), strict=True))
    assert ours.all_weights[0][0] is ours.weight_ih_l0


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("shape", ["time first", "batch first", "one sequence", "one sequence, batch first"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_call(kind: str, shape: str, hidden: bool) -> None:
    theirs, ours = pair(kind, 2, bidirectional=True, batch_first="batch first" in shape)
    single = shape.startswith("one")
    x = torch.randn(*((6,) if single else (5, 6)), D, **DOUBLE)
    B = 5 if shape == "batch first" else 6
    hx: Any = None
    if hidden:
        hx = tuple(torch.randn(*((4,) if single else (4, B)), H, **DOUBLE) for _ in range(2))
        hx = hx if kind == "LSTM" else hx[0]
    same(ours(x, hx), theirs(x, hx))


@pytest.mark.parametrize("sorted_already", [True, False])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences(kind: str, hidden: bool, sorted_already: bool) -> None:
    theirs, ours = pair(kind, 2, bidirectional=True)
    lengths = [6, 4, 4, 1] if sorted_already else [4, 6, 1, 4]
    packed = pack_padded_sequence(torch.randn(6, 4, D, **DOUBLE), torch.tensor(lengths), enforce_sorted=sorted_already)
    hx: Any = None
    if hidden:
        hx = tuple(torch.randn(4, 4, H, **DOUBLE) for _ in range(2))
        hx = hx if kind == "LSTM" else hx[0]
    same(ours(packed, hx), theirs(packed, hx))


def test_gradients_through_packed_sequences() -> None:
    theirs, ours = pair("LSTM", bidirectional=True)
    sequences = [torch.randn(n, D, **DOUBLE) for n in (2, 5, 3)]
    for module in (theirs, ours):
        out, (h, c) = module(pack_sequence(sequences, enforce_sorted=False))
        (out.data.square().sum() + h.sum() + c.square().sum()).backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        close(a.grad, b.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_state_dicts_go_both_ways(kind: str) -> None:
    theirs, ours = pair(kind, num_layers=2)
    with torch.no_grad():
        ours.weight_hh_l1.normal_()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 2, D, **DOUBLE)
    same(ours(x), theirs(x))
    with torch.no_grad():
        theirs.weight_ih_l0.normal_()
    ours.load_state_dict(theirs.state_dict())
    same(ours(x), theirs(x))


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_rnn_takes_its_nonlinearity_where_torch_does(nonlinearity: str) -> None:
    theirs, ours = pair("RNN", 2, nonlinearity, False, True)  # bias=False, batch_first=True, by position
    x = torch.randn(2, 5, D, **DOUBLE)
    same(ours(x), theirs(x))
    assert rnn.RNN(D, H, nonlinearity="sigmoid", **DOUBLE)(x)[0].min() > 0


def test_dropout_is_drawn_for_each_step_as_torch_does() -> None:
    # A second layer that passes its input on shows what the first one's dropout did to it.
    ours = rnn.RNN(H, H, 2, "relu", dropout=0.4, bias=False, **DOUBLE)
    with torch.no_grad():
        for p in ours.parameters():
            p.zero_()
        torch.nn.init.eye_(ours.weight_ih_l0)
        torch.nn.init.eye_(ours.weight_ih_l1)
    kept = ours(torch.ones(50, 20, H, **DOUBLE))[0]
    assert set(kept.unique().tolist()) == {0.0, 1 / 0.6}
    assert not torch.equal(kept[0], kept[1])
    assert (ours.eval()(torch.ones(5, 2, H, **DOUBLE))[0] == 1).all()
    with pytest.warns(UserWarning, match="expects num_layers greater than 1"):
        rnn.GRU(D, H, dropout=0.5)


def test_outputs_can_be_viewed_as_torchs_can() -> None:
    theirs, ours = pair("LSTM", bidirectional=True)
    x = torch.randn(5, 2, D, **DOUBLE)
    assert ours(x)[0].view(10, -1).shape == theirs(x)[0].view(10, -1).shape
    assert (ours.mode, pair("RNN")[1].mode) == ("LSTM", pair("RNN")[0].mode)


def test_what_is_not_supported_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="proj_size must lie in 0"):
        rnn.LSTM(D, H, proj_size=H)
    with pytest.raises(OptionError, match="GRU: proj_size is only for LSTM"):
        rnn.GRU(D, H, proj_size=2)
    lstm = rnn.LSTM(D, H, **DOUBLE)
    x = torch.randn(5, 2, D, **DOUBLE)
    with pytest.raises(ShapeError, match=r"hx must be 2 of \[\(1, 2, 3\), \(1, 2, 3\)\], got \[\(1, 2, 3\)\]"):
        lstm(x, torch.zeros(1, 2, H, **DOUBLE))
    with pytest.raises(ShapeError, match=r"hx must be 2 of \[\(1, 2, 3\)"):
        lstm(x, (torch.zeros(1, 3, H, **DOUBLE), torch.zeros(1, 3, H, **DOUBLE)))
    with pytest.raises(ShapeError, match="input must be a tensor of 2-D or 3-D"):
        lstm(torch.zeros(4, **DOUBLE))


def test_code_written_for_torch_runs() -> None:
    model = nn.Sequential(rnn.LSTM(D, H, batch_first=True))
    model[0].flatten_parameters()
    out, _ = model(torch.randn(2, 5, D))
    assert out.shape == (2, 5, H)
    assert (model[0].num_layers, model[0].bidirectional, model[0].proj_size) == (1, False, 0)
