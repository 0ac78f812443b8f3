"""Numbers as inputs: standardised, and projected where that is asked for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recur.nn import drop_steps


class SignalInput(nn.Module):
    """Steps (B, T, D) to vectors (B, T, width or D). Mean and deviation are kept with the weights."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, D: int, width: int = 0, *, noise: float = 0.0, drop: float = 0.0, variational: bool = False
    ) -> None:
        super().__init__()
        self.D, self.noise, self.drop, self.variational = D, noise, drop, variational
        self.register_buffer("mean", torch.zeros(D))
        self.register_buffer("deviation", torch.ones(D))
        self.project = nn.Linear(D, width) if width else None

    @torch.no_grad()
    def fit(self, mean: Tensor, deviation: Tensor) -> None:
        """Standardise by these (D,) from now on."""
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    @property
    def width(self) -> int:
        return self.D if self.project is None else self.project.out_features

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.deviation
        if self.training and self.noise:
            x = x + self.noise * torch.randn_like(x)
        return drop_steps(self._projected(x), self.drop, training=self.training, variational=self.variational)

    def vectors(self, x: Tensor) -> Tensor:
        """Of steps (…, D), without noise and dropout: what a step of use reads."""
        return self._projected((x - self.mean) / self.deviation)

    def _projected(self, x: Tensor) -> Tensor:
        projected: Tensor = x if self.project is None else self.project(x)
        return projected
