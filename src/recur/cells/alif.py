"""Adaptive leaky integrate-and-fire neurons (ALIF): every spike raises the threshold for some time."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from recur.cells.cell import Cell, State, Tensors
from recur.cells.contract import check_options
from recur.cells.slopes import SURROGATES, detach, spike
from recur.errors import OptionError, unknown


@dataclass
class ALIF(Cell):
    """v' = α v + x_v + h_v − θ h
    h' = 1 where v' ≥ θ + β a, else 0
    a' = ρ a + h'

    Bellec et al., A solution to the learning dilemma for recurrent networks of spiking neurons, Nature Communications
    11 (2020), equations 6 to 8. α is `decay`, ρ `adaptation_decay`, β `adaptation`, θ `threshold`. The derivative of a
    spike is that of a triangle, max(0, 1 − |v' − θ − β a| / θ) · 0.3 / θ, or another `surrogate` as in LIF. The reset
    θ h has no gradient. W multiplies the spikes. Not in torch.nn.

    >>> net = recur.Recurrent("alif", 3, 4)
    >>> net(torch.randn(2, 5, 3)).state[0]._fields
    ('h', 'v', 'a')
    """

    decay: float = 0.95
    adaptation_decay: float = 0.99
    adaptation: float = 0.17
    threshold: float = 1.0
    surrogate: str = "triangle"
    alpha: float = 0.3

    name = "alif"
    gates = ("v",)
    exact_gradient = False
    states = ("h", "v", "a")

    def __post_init__(self) -> None:
        check_options(self, decay=float, adaptation_decay=float, adaptation=float, threshold=float, alpha=float)
        if self.surrogate not in SURROGATES:
            raise OptionError(f"ALIF: {unknown('surrogate', self.surrogate, SURROGATES)}")
        if self.threshold <= 0:
            raise OptionError(f"ALIF: threshold must be above 0, got {self.threshold}")

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        fired: Tensor = detach(s.h)
        v = self.decay * s.v + x.v + h.v - self.threshold * fired
        above = (v - self.threshold - self.adaptation * s.a) / self.threshold
        fires = spike(above, self.surrogate, self.alpha or None)
        return fires, v, self.adaptation_decay * s.a + fires
