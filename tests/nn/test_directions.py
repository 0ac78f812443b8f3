"""Reading order: a network that reads backward is a forward one on sequences turned around, each at its own length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from recur.nn import Connections, Init, Recurrent
from tests.support import ALL_CELLS, DOUBLE, HERE, close

B, T, D, H = 3, 6, 4, 5
LENGTHS = [6, 1, 4]


def twins(cell: str = "lstm", **options: Any) -> tuple[Recurrent, Recurrent]:
    """A backward and a forward network with the same weights."""
    backward = Recurrent(cell, D, H, direction="backward", **options, **DOUBLE)
    forward = Recurrent(cell, D, H, **options, **DOUBLE)
    weights = {name.removesuffix("_reverse"): value for name, value in backward.state_dict().items()}
    forward.load_state_dict(weights)
    return backward.eval(), forward.eval()  # noise is drawn for each step, so it would not be turned around


def turned(x: Tensor, lengths: list[int]) -> Tensor:
    """Each row's first `length` steps in the opposite order, and zeros behind them."""
    rows = [torch.cat([row[:n].flip(0), torch.zeros_like(row[n:])]) for row, n in zip(x, lengths, strict=True)]
    return torch.stack(rows)


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
@pytest.mark.parametrize("name", ALL_CELLS)
def test_backward_is_forward_on_what_is_turned_around(name: str, lengths: list[int] | None) -> None:
    backward, forward = twins(name, num_layers=2, connections=Connections(skip=True, residual=True))
    assert list(backward.suffixes()) == ["_l0_reverse", "_l1_reverse"]
    assert backward.output_size == forward.output_size == 2 * forward.cell.output_width(H)
    x = torch.randn(B, T, D, **DOUBLE).requires_grad_()
    ends = lengths or [T] * B
    ours, theirs = backward(x, lengths=lengths), forward(turned(x, ends), lengths=lengths)
    close(ours.outputs, turned(theirs.outputs, ends))
    for mine, final in zip(ours.state, theirs.state, strict=True):
        for a, b in zip(mine, final, strict=True):
            close(a, b, "final state")

    weight = torch.randn_like(ours.outputs)
    leaves = [p for _, p in sorted(backward.named_parameters())], [p for _, p in sorted(forward.named_parameters())]
    got = torch.autograd.grad((ours.outputs * weight).sum(), [x, *leaves[0]])
    expected = torch.autograd.grad((turned(theirs.outputs, ends) * weight).sum(), [x, *leaves[1]])
    for a, b in zip(got, expected, strict=True):
        close(a, b, "gradient")


@pytest.mark.parametrize("backend", HERE)
def test_backward_is_the_second_half_of_both(backend: str) -> None:
    both = Recurrent("gru", D, H, direction="both", backend=backend, **DOUBLE)
    backward = Recurrent("gru", D, H, direction="backward", backend=backend, **DOUBLE)
    backward.load_state_dict({k: v for k, v in both.state_dict().items() if k.endswith("_reverse")})
    x = torch.randn(B, T, D, **DOUBLE)
    outputs, state, traces = backward(x, lengths=LENGTHS)
    close(outputs, both(x, lengths=LENGTHS).outputs[..., H:])
    assert len(state) == len(traces) == 1


def test_backward_goes_on_from_a_state_and_starts_from_a_learned_one() -> None:
    net = Recurrent("gru", D, H, direction="backward", init=Init(state="learned"), **DOUBLE)
    with torch.no_grad():
        net.h0_l0_reverse.normal_()
    x = torch.randn(B, T, D, **DOUBLE)
    whole = net(x)
    later = net(x[:, 2:])
    earlier = net(x[:, :2], later.state)
    close(torch.cat([earlier.outputs, later.outputs], 1), whole.outputs)
    close(earlier.state[0].h, whole.outputs[:, 0])


def test_its_repr_names_what_is_unusual() -> None:
    net = Recurrent("gru", D, H, direction="backward", connections=Connections("sum"))
    expected = "direction='backward', connections=Connections(merge='sum', residual=False, skip=False)"
    assert repr(net) == f"Recurrent(GRU(), 4, 5, {expected})"
