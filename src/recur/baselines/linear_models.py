"""Softmax (multinomial logistic) regression fitted by L-BFGS, for dense and for sparse features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

LEAST = -70.0
"""Log-probability that stands for log 0, so that losses stay finite."""

Product = Callable[[Tensor], Tensor]


def most_frequent(labels: Sequence[int]) -> int:
    return Counter(labels).most_common(1)[0][0]


def fit_softmax(
    weight: Tensor,
    bias: Tensor,
    forward: Product,
    backward: Product,
    y: Tensor,
    *,
    decay: float,
    class_weights: Tensor | None = None,
    tolerance: float = 1e-7,
    max_iter: int = 100,
) -> tuple[Tensor, Tensor]:
    """Minimise −mean log softmax(X W + b)[y] + decay / 2 · ‖W‖², starting from `weight` and `bias`.

    The loss is convex, so the result does not depend on the start. The gradient is written by hand, because autograd
    would visit every column of a sparse X for each row.

    Args:
        weight: W, of shape (D, K). bias: b, of shape (K,).
        forward: W ↦ X W, of shape (N, K). backward: E ↦ Xᵀ E, of shape (D, K).
        y: classes, of shape (N,).
        class_weights: factor of the loss of each class, of shape (K,).
    """
    weight, bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
    target = one_hot(y, len(bias)).to(bias)
    each = (torch.ones(len(y)) if class_weights is None else class_weights[y]).to(bias)[:, None] / len(y)
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=max_iter,
        history_size=10,
        tolerance_grad=tolerance,
        tolerance_change=tolerance**2,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        log_p = (forward(weight) + bias).log_softmax(-1)
        error = (log_p.exp() - target) * each
        weight.grad, bias.grad = backward(error).add_(weight, alpha=decay), error.sum(0)
        return -(log_p * target * each).sum() + decay * weight.square().sum() / 2

    with torch.no_grad():
        optimizer.step(closure)
    return weight.detach(), bias.detach()


def softmax_regression(x: Tensor, y: Tensor, classes: int, measured: Tensor, decay: float = 0.01) -> Tensor:
    """Fit a softmax regression to vectors x (N, D) of classes y (N,); return the logits (n, classes) of `measured`."""
    weight, bias = fit_softmax(
        x.new_zeros(x.shape[1], classes), x.new_zeros(classes), x.matmul, x.T.matmul, y, decay=decay
    )
    return measured @ weight + bias
