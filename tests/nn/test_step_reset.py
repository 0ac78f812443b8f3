"""`Recurrent.step(reset=…)` against `reset` of a pass over the sequence."""

from __future__ import annotations

import pytest
import torch

import recur
from recur.errors import ShapeError


@pytest.mark.parametrize("cell", ["gru", "lstm", "slstm", "mlstm"])
@pytest.mark.parametrize("init", ["torch", recur.nn.Init(state="learned")])
def test_rows_start_again(cell: str, init: str | recur.nn.Init) -> None:
    torch.manual_seed(0)
    net = recur.Recurrent(cell, 3, 8, num_layers=2, init=init, dtype=torch.float64)
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if name.startswith(("h0", "c0")):
                weight.normal_()
    x, reset = torch.randn(4, 9, 3, dtype=torch.float64), torch.rand(4, 9) < 0.3
    with torch.no_grad():
        expected, without = net(x, reset=reset).outputs, net(x).outputs
        state, outputs = None, []
        for t in range(9):
            output, state = net.step(x[:, t], state, reset=reset[:, t])
            outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, 1), expected, atol=1e-9, rtol=1e-7)
    assert (expected - without).abs().max() > 1e-5


def test_a_reset_of_another_shape_is_refused() -> None:
    net = recur.Recurrent("gru", 3, 4)
    _, state = net.step(torch.randn(2, 3))
    for reset in (torch.ones(2, 1, dtype=torch.bool), torch.ones(2)):
        with pytest.raises(ShapeError, match=r"reset must be a bool tensor \(B=2,\), got"):
            net.step(torch.randn(2, 3), state, reset=reset)
