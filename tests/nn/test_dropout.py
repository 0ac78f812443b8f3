"""Dropout: how much goes, what becomes of the rest, and that chance is torch's own."""

from __future__ import annotations

import pytest
import torch

from recur.nn.functional import fast_dropout, sequence_dropout
from tests.support import close


@pytest.mark.parametrize("p", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("shape", [(1000, 1003), (7, 11, 13000)], ids=str)
def test_the_share_that_goes_and_the_scale_of_the_rest(p: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y = fast_dropout(x, p)
    gone = y == 0
    error = (p * (1 - p) / x.numel()) ** 0.5
    assert abs(gone.double().mean().item() - p) < 4 * error + 1 / 65536
    close(y[~gone].detach(), (x[~gone] / (1 - p)).detach())
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad == 0, gone)


def test_entries_are_dropped_one_by_one() -> None:
    """Neighbours share a random word: no more of them go together than chance has it, at any distance up to a word."""
    torch.manual_seed(1)
    gone = fast_dropout(torch.ones(1_000_000), 0.5) == 0
    for distance in (1, 2, 3, 4, 5, 8):
        together = (gone[distance:] & gone[:-distance]).double().mean().item()
        assert abs(together - 0.25) < 4 * (0.25 * 0.75 / 1e6) ** 0.5


def test_chance_comes_from_the_seed() -> None:
    x = torch.ones(50, 30)
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(fast_dropout(x, 0.5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(fast_dropout(x, 0.0), x)
    assert not fast_dropout(x, 1.0).any()


def test_one_mask_for_a_sequence_or_one_for_each_step() -> None:
    x = torch.ones(3, 50, 8)
    kept = sequence_dropout(x, 0.5, training=True, variational=True)
    assert torch.equal(kept, kept[:, :1].expand_as(kept))
    each = sequence_dropout(x, 0.5, training=True, variational=False)
    assert not torch.equal(each, each[:, :1].expand_as(each))
    assert sequence_dropout(x, 0.5, training=False, variational=True) is x
