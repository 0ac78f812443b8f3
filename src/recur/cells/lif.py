"""Leaky integrate-and-fire neurons (LIF): spikes with a surrogate gradient."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from recur.cells.cell import Cell, State, Tensors
from recur.cells.contract import check_options
from recur.cells.slopes import SURROGATES, detach, spike
from recur.errors import OptionError, unknown

RESETS = ("subtract", "zero")


@dataclass
class LIF(Cell):
    """v' = β v + x_v + h_v − θ h         (reset="subtract")
    v' = β v ⊙ (1 − h) + x_v + h_v     (reset="zero")
    h' = 1 where v' ≥ θ, else 0

    h are spikes and v is the membrane potential before its reset. The derivative of a spike is that of a smooth
    function: `surrogate` atan, fast_sigmoid, sigmoid, triangle or straight_through with sharpness `alpha`; 0 is the
    function's own default. The reset has no gradient (`detach_reset`). With `recurrent` the spikes of a layer are
    multiplied by W (Bellec et al. 2018), otherwise the layer is feedforward. `decay_input` scales the input by 1 − β.
    "subtract" is Leaky of snnTorch (Eshraghian et al. 2023), "zero" with `decay_input` is LIFNode of SpikingJelly (Fang
    et al. 2023). Not in torch.nn.

    >>> net = recur.Recurrent("lif:threshold=0.5", 3, 4)
    >>> sorted(net(torch.randn(2, 50, 3)).outputs.unique().tolist())
    [0.0, 1.0]
    """

    decay: float = 0.9
    threshold: float = 1.0
    reset: str = "subtract"
    surrogate: str = "atan"
    alpha: float = 0.0
    recurrent: bool = False
    detach_reset: bool = True
    decay_input: bool = False

    name = "lif"
    gates = ("v",)
    exact_gradient = False
    states = ("h", "v")

    def __post_init__(self) -> None:
        check_options(
            self, decay=float, threshold=float, alpha=float, recurrent=bool, detach_reset=bool, decay_input=bool
        )
        if self.reset not in RESETS:
            raise OptionError(f"LIF: {unknown('reset', self.reset, RESETS)}")
        if self.surrogate not in SURROGATES:
            raise OptionError(f"LIF: {unknown('surrogate', self.surrogate, SURROGATES)}")
        if not self.recurrent:
            self.state_gates = ()

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        current = x.v + h.v if self.recurrent else x.v
        if self.decay_input:
            current = (1 - self.decay) * current
        fired: Tensor = detach(s.h) if self.detach_reset else s.h
        if self.reset == "subtract":
            v = self.decay * s.v + current - self.threshold * fired
        else:
            v = self.decay * s.v * (1 - fired) + current
        return spike(v - self.threshold, self.surrogate, self.alpha or None), v
