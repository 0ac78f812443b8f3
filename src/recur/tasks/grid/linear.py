"""Images without a network: the most frequent class, the nearest mean of a class, and a softmax of the pixels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recur.i18n import Message
from recur.tasks.classes import most_frequent
from recur.tasks.grid.data import Example, ImageBatch
from recur.tasks.grid.options import GridOptions
from recur.tasks.linear import softmax_regression

MOST = 10_000
"""Images that the softmax is fitted to."""


def plain_guesses(
    train: Sequence[Example], measured: Sequence[Example], options: GridOptions, classes: Sequence[str]
) -> dict[str, list[int]]:
    """What each says of what is measured, by its name."""
    always = most_frequent([example.label for example in train])
    return {
        Message("always {answer}", answer=classes[always]): [always] * len(measured),
        "nearest mean of a class": nearest_mean(train, measured, options, len(classes)),
        "softmax of the pixels": softmax_of_pixels(train, measured, options, len(classes)),
    }


def pixels_of(examples: Sequence[Example], options: GridOptions) -> tuple[Tensor, Tensor]:
    """(n, pixels), standardised, and the classes (n,)."""
    batch = ImageBatch.of(examples)
    return batch.standardised(options, torch.device("cpu")).flatten(1), batch.classes


def softmax_of_pixels(train: Sequence[Example], measured: Sequence[Example], options: GridOptions, K: int) -> list[int]:
    """The classes of what is measured."""
    x, y = pixels_of(train[:: -(-len(train) // MOST)], options)
    found: list[int] = softmax_regression(x, y, K, pixels_of(measured, options)[0]).argmax(-1).tolist()
    return found


def nearest_mean(train: Sequence[Example], measured: Sequence[Example], options: GridOptions, K: int) -> list[int]:
    x, y = pixels_of(train, options)
    sums = torch.zeros(K, x.shape[1]).index_add(0, y, x)
    means = sums / y.bincount(minlength=K).clamp(min=1)[:, None]
    found: list[int] = torch.cdist(pixels_of(measured, options)[0], means).argmin(-1).tolist()
    return found
