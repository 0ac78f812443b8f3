"""The loss without its logits, against PyTorch's with them."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy, linear

from recur.nn.functional import linear_cross_entropy
from tests.support import close

N, H, K = 50, 6, 23


def given(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    sizes = ((N, H), (K, H), (K,))
    return tuple(torch.randn(*size, dtype=dtype, requires_grad=True) for size in sizes)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 4 * K * 20, 1 << 30], ids=["least", "three", "whole"])
def test_loss_and_gradients(smoothing: float, chunk: int) -> None:
    h, V, c = given()
    y = torch.randint(0, K, (N,))
    found, expected = (
        linear_cross_entropy(h, V, c, y, smoothing, chunk),
        cross_entropy(linear(h, V, c), y, label_smoothing=smoothing),
    )
    close(found, expected)
    for got, value in zip(*(torch.autograd.grad(3 * loss, [h, V, c]) for loss in (found, expected)), strict=True):
        close(got, value)


def test_by_finite_differences() -> None:
    h, V, c = given()
    y = torch.randint(0, K, (N,))
    assert gradcheck(lambda *three: linear_cross_entropy(*three, y, 0.2, 1), (h, V, c), fast_mode=True)


def test_a_matrix_that_is_the_embedding_too() -> None:
    """Both gradients of it are added."""
    _, V, c = given()
    x, y = torch.randint(0, K, (2, N)).unbind()
    losses = (linear_cross_entropy(V[x], V, c, y, chunk=1), cross_entropy(linear(V[x], V, c), y))
    close(*(torch.autograd.grad(loss, [V])[0] for loss in losses))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_under_autocast_sums_are_float32(dtype: torch.dtype) -> None:
    h, V, c = given(torch.float32)
    y = torch.randint(0, K, (N,))
    with torch.autocast("cpu", dtype):
        found = [linear_cross_entropy(h, V, c, y, chunk=1) for _ in range(2)]
    assert found[0].dtype == torch.float32
    expected = cross_entropy(linear(h, V, c), y)
    assert abs((found[0] - expected).item()) < 0.02 * expected.item()
    exact = torch.autograd.grad(expected, [h, V, c])
    twice = [torch.autograd.grad(loss, [h, V, c]) for loss in found]
    for got, again, value in zip(*twice, exact, strict=True):
        assert got.dtype == torch.float32
        assert torch.equal(got, again), "the same bits"
        assert (got - value).norm() < 0.02 * value.norm()


def test_no_gradient_is_made_where_none_is_wanted() -> None:
    h, V, c = (p.detach() for p in given())
    y = torch.randint(0, K, (N,))
    with torch.no_grad():
        close(linear_cross_entropy(h, V, c, y, chunk=1), cross_entropy(linear(h, V, c), y))
    V.requires_grad_()
    loss = linear_cross_entropy(h, V, c, y, chunk=1)
    loss.backward()
    close(V.grad, torch.autograd.grad(cross_entropy(linear(h, V, c), y), [V])[0])
