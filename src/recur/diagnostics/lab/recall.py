"""Recall: the smallest task with a dependency of a known length."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recur.nn import Recurrent


class Recall(nn.Module):
    """Predict at the end which of two symbols came first: a dependency of exactly T − 1 steps."""

    def __init__(self, net: Recurrent) -> None:
        super().__init__()
        self.net = net
        self.head = nn.Linear(net.output_size, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.net(x).outputs[:, -1])
        return logits


def recall_batch(B: int, T: int) -> tuple[Tensor, Tensor]:
    y = torch.randint(2, (B,))
    x = torch.zeros(B, T, 3)
    x[torch.arange(B), 0, y] = 1.0
    x[:, 1:, 2] = torch.randn(B, T - 1)
    return x, y
