"""Recurrence in two dimensions: diagonals against the plain double loop, and what each corner sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from recur.errors import OptionError, ShapeError
from recur.layers.grid import Grid
from tests.support import close

D, H = 2, 3


def network(name: str, corners: int) -> Grid:
    made = Grid(name, D, H, corners=corners, dtype=torch.float64)
    for p in made.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return made


def images(B: int, R: int, C: int) -> Tensor:
    return torch.randn(B, R, C, D, dtype=torch.float64, requires_grad=True)


LARGE = (400, 3, 4)
"""Diagonals of more than 4096 numbers, of which tanh is taken in another way."""


@pytest.mark.parametrize("size", [(2, 4, 4), (1, 1, 1), (3, 1, 5), (2, 5, 1), (2, 3, 6), (1, 6, 3), (2, 2, 2), LARGE])
@pytest.mark.parametrize("corners", [1, 2, 4])
@pytest.mark.parametrize("name", ["net", "lstm"])
def test_diagonals_are_the_plain_double_loop_in_value_and_gradient(
    name: str, corners: int, size: tuple[int, int, int]
) -> None:
    net, x = network(name, corners), images(*size)
    wanted = [x, *net.parameters()]
    weight = torch.randn(*size, corners * H, dtype=torch.float64)
    fast, plain = net(x), net.plain(x)
    close(fast.detach(), plain.detach(), "outputs")
    expected = torch.autograd.grad((plain * weight).sum(), wanted)
    for got, grad in zip(torch.autograd.grad((fast * weight).sum(), wanted), expected, strict=True):
        close(got, grad)


@pytest.mark.parametrize("name", ["net", "lstm"])
def test_gradcheck(name: str) -> None:
    net = network(name, 2)
    assert torch.autograd.gradcheck(lambda x, *_: net(x), (images(1, 3, 2), *net.parameters()))


def test_one_row_is_a_plain_recurrent_network() -> None:
    net, x = network("net", 1), images(2, 1, 5)
    w = {name: p.detach().numpy() for name, p in net.composes[0].named_parameters()}
    h = np.zeros((2, H))
    for t in range(5):
        h = np.tanh(x[:, 0, t].detach().numpy() @ w["weight_x"].T + h @ w["weight_h"][:, H:].T + w["bias"])
        close(net(x)[:, 0, t].detach(), torch.tensor(h))


def seen(net: Grid, i: int, j: int, corner: int | None = None) -> Tensor:
    """Which points the output at (i, j) depends on, (R, C)."""
    x = images(1, 4, 5)
    out = net(x)[0, i, j]
    out = out if corner is None else out[corner * H : (corner + 1) * H]
    (grad,) = torch.autograd.grad(out.sum(), x)
    return grad[0].abs().sum(-1) > 0


@pytest.mark.parametrize("name", ["net", "lstm"])
def test_a_corner_sees_the_rectangle_behind_it_and_four_see_all(name: str) -> None:
    i, j = 1, 3
    rows, columns = torch.arange(4)[:, None], torch.arange(5)
    behind = [(rows <= i) & (columns <= j), (rows <= i) & (columns >= j), (rows >= i) & (columns <= j)]
    behind.append((rows >= i) & (columns >= j))
    four = network(name, 4)
    for corner, expected in enumerate(behind):
        assert torch.equal(seen(four, i, j, corner), expected.expand(4, 5))
    assert bool(seen(four, i, j).all())
    assert torch.equal(seen(network(name, 1), i, j), behind[0])
    assert torch.equal(seen(network(name, 2), i, j), behind[0] | behind[3])


def test_what_does_not_fit_is_refused_in_words() -> None:
    with pytest.raises(OptionError, match="1, 2 or 4 corners, got 3"):
        Grid("net", D, H, corners=3)
    with pytest.raises(OptionError, match="unknown composition of a grid 'rntn'"):
        Grid("rntn", D, H)
    with pytest.raises(ShapeError, match=r"x must be \(B, R, C, D=2\), got \(8, 8, 2\); add an axis"):
        network("net", 1)(torch.zeros(8, 8, 2, dtype=torch.float64))
