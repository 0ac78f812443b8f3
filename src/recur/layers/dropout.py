"""Dropout along a sequence."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import dropout


def drop_steps(x: Tensor, p: float, *, training: bool, variational: bool) -> Tensor:
    """(B, T, D) with entries dropped: one mask for a whole sequence (Gal and Ghahramani 2016), or one for each step."""
    if not (training and p):
        return x
    if not variational:
        return dropout(x, p)
    return x * dropout(x.new_ones(x.shape[0], 1, x.shape[2]), p)
