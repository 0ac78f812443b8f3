"""Output recurrence: with a teacher all steps at once, and the same as one after the other."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import one_hot

from recur.errors import OptionError, ShapeError
from recur.nn import OutputRecurrent
from tests.support import close

B, T, D, H, K = 3, 6, 4, 5, 7


def case(**options: str) -> tuple[OutputRecurrent, torch.Tensor, torch.Tensor, torch.Tensor]:
    layer = OutputRecurrent(D, H, K, **options).double()
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    targets = one_hot(torch.randint(K, (B, T)), K).double()
    return layer, x, targets, torch.randn(B, T, K, dtype=torch.float64)


@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid"])
def test_all_at_once_is_step_by_step_and_so_are_its_gradients(activation: str) -> None:
    layer, x, targets, weight = case(activation=activation)
    leaves = [x, *layer.parameters()]
    at_once = layer(x, targets)
    in_turn = layer.run(x, lambda t, o: targets[:, t], torch.zeros(B, K, dtype=torch.float64))
    close(at_once.detach(), in_turn.detach())
    for a, b in zip(
        torch.autograd.grad((at_once * weight).sum(), leaves),
        torch.autograd.grad((in_turn * weight).sum(), leaves),
        strict=True,
    ):
        close(a, b)


@pytest.mark.parametrize("feed", ["output", "softmax", "likeliest"])
def test_free_running_reads_its_own_outputs(feed: str) -> None:
    layer, x, _, _ = case(feed=feed)
    first = torch.randn(B, K, dtype=torch.float64)
    free = layer(x, first=first).detach()
    before = first
    for t in range(T):
        h = torch.tanh(x[:, t] @ layer.hidden.weight.T + layer.hidden.bias + before @ layer.back.weight.T)
        o = (h @ layer.output.weight.T + layer.output.bias).detach()
        close(free[:, t], o)
        before = {"output": o, "softmax": o.softmax(-1), "likeliest": one_hot(o.argmax(-1), K).double()}[feed]


def test_with_a_teacher_nothing_crosses_time() -> None:
    layer, x, targets, _ = case()
    (grad,) = torch.autograd.grad(layer(x, targets)[:, 3].sum(), x)
    assert grad[:, 3].abs().sum() > 0
    assert grad[:, [0, 1, 2, 4, 5]].abs().sum() == 0
    (free,) = torch.autograd.grad(layer.run(x, lambda t, o: o, targets[:, 0])[:, 3].sum(), x)
    assert free[:, 0].abs().sum() > 0


def test_it_learns_what_its_outputs_can_carry() -> None:
    """1 2 0 1 2 0 …: each symbol follows from the one before, and from nothing else."""
    layer = OutputRecurrent(1, 8, 3)
    targets = one_hot(torch.arange(12).roll(-1) % 3, 3).float()[None]
    x = torch.zeros(1, 12, 1)
    optimizer = torch.optim.Adam(layer.parameters(), 0.05)
    for _ in range(100):
        loss = torch.nn.functional.cross_entropy(layer(x, targets).flatten(0, 1), targets.flatten(0, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert layer(x).argmax(-1).tolist() == targets.argmax(-1).tolist()


def test_what_does_not_fit() -> None:
    with pytest.raises(OptionError, match="unknown feed 'own'"):
        OutputRecurrent(1, 1, 1, feed="own")
    with pytest.raises(OptionError, match="unknown activation 'tan'; did you mean 'tanh'"):
        OutputRecurrent(1, 1, 1, activation="tan")
    layer, x, targets, _ = case()
    with pytest.raises(ShapeError, match="x must be"):
        layer(x[0])
    with pytest.raises(ShapeError, match="targets must be"):
        layer(x, targets[:, :2])
