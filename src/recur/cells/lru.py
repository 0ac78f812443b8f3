"""Linear recurrent unit (LRU): one complex number per unit, rotated and scaled by every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import cos, exp, sin

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.cells.contract import check_options
from recur.errors import OptionError


@dataclass
class LRU(Cell):
    """λ = exp(−e^ν + i e^θ)   γ = e^g
    re' + i im' = λ ⊙ (re + i im) + γ ⊙ (x_re + i x_im)

    Orvieto et al., Resurrecting recurrent neural networks for long sequences, ICML 2023. x_re and x_im are the
    paper's B u_t, with a bias. The output is both parts concatenated, 2H numbers; the next layer is the paper's C.
    |λ| = exp(−e^ν) is below 1 for every ν, so gradients do not explode. λ is initialised uniformly on the ring
    `r_min` ≤ |λ| ≤ `r_max` with an angle in 0 … `max_phase`, and γ = √(1 − |λ|²), which keeps the variance of the state
    equal to that of its input. For long sequences the paper uses the ring 0.9 … 0.999 and the angle π/10. Not in
    torch.nn.

    >>> net = recur.Recurrent("lru:r_min=0.9,r_max=0.99", 3, 4)
    >>> net(torch.randn(2, 5, 3)).outputs.shape         # real and imaginary parts, concatenated
    torch.Size([2, 5, 8])
    """

    r_min: float = 0.0
    r_max: float = 1.0
    max_phase: float = 2 * math.pi

    name = "lru"
    gates = ("re", "im")
    state_gates = ()
    states = ("re", "im")
    outputs = ("re", "im")
    extras = {"nu": ("H",), "theta": ("H",), "gamma": ("H",)}

    def __post_init__(self) -> None:
        check_options(self, r_min=float, r_max=float, max_phase=float)
        if not 0 <= self.r_min < self.r_max <= 1:
            raise OptionError(f"LRU: 0 ≤ r_min < r_max ≤ 1 is wanted, got r_min={self.r_min}, r_max={self.r_max}")
        if not 0 < self.max_phase <= 2 * math.pi:
            raise OptionError(f"LRU: max_phase must lie in 0 … 2π, got {self.max_phase}")

    def init_extras(self, weights: Weights) -> None:
        nu, theta, gamma = (weights[name] for name in self.extras)
        with torch.no_grad():
            # Exclude 0, which has no logarithm, and 1, where |λ| = 1 never forgets. float64, because float32 cannot
            # represent the difference on a ring close to 1.
            area = torch.empty_like(nu).uniform_(1e-6, 1 - 1e-6).double()
            square = self.r_min**2 + area * (self.r_max**2 - self.r_min**2)
            nu.copy_(torch.log(-0.5 * torch.log(square)))
            theta.copy_(torch.log(self.max_phase * torch.empty_like(theta).uniform_(1e-6, 1)))
            gamma.copy_(0.5 * torch.log1p(-square))

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        radius, angle, scale = exp(-exp(w.nu)), exp(w.theta), exp(w.gamma)
        a, b = radius * cos(angle), radius * sin(angle)
        return a * s.re - b * s.im + scale * x.re, b * s.re + a * s.im + scale * x.im
