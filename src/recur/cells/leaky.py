"""Leaky units: running averages with a time scale per unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import sigmoid, tanh

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.errors import OptionError


@dataclass
class Leaky(Cell):
    """h' = α ⊙ h + (1 − α) ⊙ tanh(x_h + h_h)

    Jaeger et al., Optimization and applications of echo state networks with leaky-integrator neurons, Neural
    Networks 20 (2007); Deep Learning, section 10.9.2. A unit remembers for about 1 / (1 − α) steps. `alpha` is one
    number for all units, or None: then α = σ(a) is learned per unit, and the initial time scales are log-spaced from
    1.1 to 100 steps. Not in torch.nn; with α = 0 it is torch.nn.RNN.

    >>> net = recur.Recurrent(recur.cells.Leaky(alpha=0.9), 1, 1)
    >>> quiet = net(torch.zeros(1, 3, 1), (torch.ones(1, 1),))
    >>> quiet.outputs.shape
    torch.Size([1, 3, 1])
    """

    alpha: float | None = None

    name = "leaky"
    gates = ("h",)
    extras = {"a": ("H",)}

    def __post_init__(self) -> None:
        if self.alpha is not None:
            if not (isinstance(self.alpha, int | float) and 0 <= self.alpha < 1):
                raise OptionError(f"Leaky: alpha must lie in [0, 1), or be None to be learned, got {self.alpha!r}")
            self.extras = {}

    def init_extras(self, weights: Weights) -> None:
        if self.extras:
            a = weights["a"]
            scale = torch.logspace(math.log10(1.1), 2, a.numel(), dtype=a.dtype, device=a.device)
            with torch.no_grad():
                a.copy_(torch.log(scale - 1))  # α = 1 − 1/scale = σ(log(scale − 1))

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors | None = None) -> State:
        alpha = float(self.alpha or 0) if w is None else sigmoid(w.a)
        return (alpha * s.h + (1 - alpha) * tanh(x.h + h.h),)
