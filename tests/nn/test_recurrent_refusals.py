"""What a recurrent network refuses, and in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import recur.nn
from recur.cells import Cell
from recur.errors import BackendError, CellError, OptionError, ShapeError
from recur.nn import Depth, Dropout, Init, Recurrent
from tests.nn.test_recurrent import B, H, inputs, layer
from tests.support import DOUBLE


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_layers": 0}, "layers must be a whole number ≥ 1, got 0"),
        ({"num_layers": 1.5}, "layers must be a whole number"),
        ({"num_layers": True}, "layers must be a whole number"),
        ({"direction": "backwards"}, "unknown direction 'backwards'; did you mean 'backward'"),
        ({"direction": True}, "unknown direction True"),
        ({"dropout": 1.1, "num_layers": 2}, "dropout of layers must lie in 0 … 1, got 1.1"),
        ({"init": None}, "unknown initialisation None"),
        ({"init": "xavier"}, "unknown initialisation 'xavier'"),
        ({"bptt": "half"}, "bptt 'half'"),
        ({"connections": "sum"}, r"connections must be a Connections\(…\) of recur.nn, got 'sum'"),
        ({"depth": 2}, r"depth must be a Depth\(…\)"),
        ({"cell": "gru2014", "dropout": Dropout(state=0.5)}, "multiplies its state inside the step"),
        ({"cell": "mingru", "dropout": Dropout(weights=0.5)}, "MinGRU has no product with W"),
        ({"cell": "indrnn", "dropout": Dropout(state=0.5)}, "IndRNN has no product with W"),
        ({"cell": "elman", "init": Init(forget_bias=1.0)}, "Elman has no forget gate"),
        ({"bias": False, "init": Init(forget_bias=1.0)}, "without biases"),
        ({"cell": "elman", "init": Init(chrono=10)}, "neither a forget nor an input gate"),
        ({"cell": "slstm:forget=exp", "init": Init(chrono=10)}, "neither a forget nor an input gate"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        layer(**options)


def test_sizes_and_cells_are_refused_by_name() -> None:
    Recurrent("gru", np.int64(4), np.int64(5))
    with pytest.raises(OptionError, match="hidden_size must be a whole number"):
        Recurrent("gru", 4, 0)
    with pytest.raises(OptionError, match="input_size must be a whole number ≥ 1, got array"):
        Recurrent("gru", np.ones(2, int), 3)
    with pytest.raises(OptionError, match="hidden_size must be at most 2⁵³"):
        Recurrent("gru", 4, 2**70)
    for sizes, options in (((4, 10**7), {}), ((10**12, 4), {}), ((4, 4), {"num_layers": 10**12})):
        for make in (Recurrent, lambda cell, D, H, num_layers=10**9: recur.nn.GRU(D, H, num_layers)):
            with pytest.raises(OptionError, match="has weights of .* GiB, and this machine has"):
                make("gru", *sizes, **options)
    with pytest.raises(OptionError, match="has weights of .* GiB"):
        recur.nn.LSTMCell(4, 10**9)
    with pytest.raises(CellError, match="unknown cell 'gruu'"):
        layer("gruu")
    with pytest.raises(CellError, match="MinGRU has no product with W"):
        layer("mingru", depth=Depth(transition=1))


def test_wrong_calls_are_refused() -> None:
    net = layer("gru", num_layers=2)
    with pytest.raises(ShapeError, match=r"GRU: x must be \(B, T, D=4\), got \(3, 4\); add a time axis"):
        net(torch.zeros(3, 4, **DOUBLE))
    with pytest.raises(ShapeError, match=r"x must be \(B, T, D=4\), got \(3, 6, 5\)"):
        net(torch.zeros(3, 6, 5, **DOUBLE))
    with pytest.raises(ShapeError, match="one entry for each of 2 layers"):
        net(inputs(), [torch.zeros(B, H, **DOUBLE)])
    for wrong in (torch.zeros(2, H, **DOUBLE), 3):
        with pytest.raises(ShapeError, match=r"one entry for each of 2 layers and directions, got (Tensor|int)"):
            net(inputs(), wrong)
    with pytest.raises(BackendError, match="unknown backend 'tourch'"):
        layer("gru", backend="tourch")
    with pytest.raises(CellError, match="Cell has no step"):
        layer(Cell)
