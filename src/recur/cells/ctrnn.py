"""Continuous-time RNN with noise, as trained in neuroscience."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import relu

from recur.cells.cell import Cell, State, Tensors
from recur.cells.contract import check_options
from recur.errors import OptionError


@dataclass
class CTRNN(Cell):
    """h' = (1 − α) h + α ReLU(x_h + h_h + √(2/α) σ ε),   ε ~ N(0, 1) in training, 0 in evaluation

    Song, Yang and Wang, Training excitatory-inhibitory recurrent neural networks for cognitive tasks, PLoS
    Computational Biology 12 (2016): τ dr/dt = −r + f(W r + U u + √(2τ) σ ξ), one Euler step with α = Δt/τ. The noise of
    a step depends on the seed, the row, the step and the unit. Not in torch.nn.

    >>> recur.Recurrent("ctrnn:alpha=0.1,sigma=0.05", 3, 4)(torch.randn(2, 5, 3)).outputs.shape
    torch.Size([2, 5, 4])
    """

    alpha: float = 0.2
    sigma: float = 0.1

    name = "ctrnn"
    gates = ("h",)
    noise = {"eps": "normal"}

    def __post_init__(self) -> None:
        check_options(self, alpha=float, sigma=float)
        if not 0 < self.alpha <= 1:
            raise OptionError(f"CTRNN: alpha must lie in 0 … 1, got {self.alpha}")

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        drive = x.h + h.h + math.sqrt(2 / self.alpha) * self.sigma * x.eps
        return ((1 - self.alpha) * s.h + self.alpha * relu(drive),)
