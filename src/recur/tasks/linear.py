"""A softmax of a vector's entries: the linear classifier that a network has to beat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

LEAST = -70.0
"""Log-probability that stands for log 0, so that losses stay finite."""


def most_frequent(labels: Sequence[int]) -> int:
    return Counter(labels).most_common(1)[0][0]


def softmax_regression(x: Tensor, y: Tensor, classes: int, measured: Tensor, decay: float = 0.01) -> Tensor:
    """Logits (n, classes) of what is measured, by weights fitted to vectors x (N, D) of classes y (N,): the least of
    the mean loss and `decay` / 2 of the weights' squares. There is one such point, however it is found."""
    weight, bias = torch.zeros(classes, x.shape[1], requires_grad=True), torch.zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(linear(x, weight, bias), y) + decay * weight.square().sum() / 2
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    return linear(measured, weight, bias).detach()
