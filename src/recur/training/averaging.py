"""The average of weights over the steps, which is measured and kept in their place.

    a ← a + (1 − β_t) (w − a)        β_t = min(β, (1 + t) / (10 + t))

Polyak and Juditsky 1992, with a window that moves along: the noise of single steps falls out, as in an ensemble of the
weights of many steps. In its first steps, when weights still change much, it looks back over fewer of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class MovingAverage:
    """The average of each parameter."""

    def __init__(self, parameters: Sequence[nn.Parameter], beta: float) -> None:
        self.beta, self.parameters = beta, list(parameters)
        self.values = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """With the weights after a step, of which `step` came before."""
        beta = min(self.beta, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.values, [p.detach() for p in self.parameters], 1 - beta)

    def pairs(self) -> dict[Tensor, Tensor]:
        return dict(zip(self.parameters, self.values, strict=True))


@torch.no_grad()
def swap(averages: dict[Tensor, Tensor]) -> None:
    """Exchange weights with their averages."""
    for p, average in averages.items():
        kept = p.clone()
        p.copy_(average)
        average.copy_(kept)
