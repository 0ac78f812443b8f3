"""Images without a network: the nearest mean of a class, and a softmax of the pixels (logistic regression)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from recur.tasks.grid.data import Example, ImageBatch
from recur.tasks.grid.options import GridOptions

MOST = 10_000
"""Images that the softmax is fitted to."""
DECAY = 0.01
"""Of its weights' squares, beside the mean loss."""


def pixels_of(examples: Sequence[Example], options: GridOptions) -> tuple[Tensor, Tensor]:
    """(n, pixels), standardised, and the classes (n,)."""
    batch = ImageBatch.of(examples)
    return batch.standardised(options, torch.device("cpu")).flatten(1), batch.classes


def softmax_of_pixels(train: Sequence[Example], measured: Sequence[Example], options: GridOptions, K: int) -> list[int]:
    """The classes of what is measured."""
    x, y = pixels_of(train[:: -(-len(train) // MOST)], options)
    weight, bias = torch.zeros(K, x.shape[1], requires_grad=True), torch.zeros(K, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(linear(x, weight, bias), y) + DECAY * weight.square().sum() / 2
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    found: list[int] = linear(pixels_of(measured, options)[0], weight, bias).argmax(-1).tolist()
    return found


def nearest_mean(train: Sequence[Example], measured: Sequence[Example], options: GridOptions, K: int) -> list[int]:
    x, y = pixels_of(train, options)
    sums = torch.zeros(K, x.shape[1]).index_add(0, y, x)
    means = sums / y.bincount(minlength=K).clamp(min=1)[:, None]
    found: list[int] = torch.cdist(pixels_of(measured, options)[0], means).argmin(-1).tolist()
    return found
