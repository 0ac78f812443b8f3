"""Liquid time-constant network (LTC): an ordinary differential equation per unit, with a synapse for every pair."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, sigmoid
from torch.nn.functional import softplus

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.errors import OptionError

RANGES = {
    "gleak": (0.001, 1.0), "vleak": (-0.2, 0.2), "cm": (0.4, 0.6), "w": (0.001, 1.0), "sigma": (3.0, 8.0),
    "mu": (0.3, 0.8), "sensory_w": (0.001, 1.0), "sensory_sigma": (3.0, 8.0), "sensory_mu": (0.3, 0.8),
}  # fmt: skip
"""Ranges of the initial values, as in ncps."""


@dataclass
class LTC(Cell):
    """a_ij(y) = w_ij σ(σ_ij (y_i − μ_ij))         a synapse from i to j; for inputs likewise
    v'_j = (c_j v_j + g_j e_j + Σ_i a_ij(v) E_ij + Σ_i a_ij(x) E_ij + x_j) / (c_j + g_j + Σ_i a_ij(v) + Σ_i a_ij(x))
    with c = softplus(cm) · unfolds / Δt, `unfolds` such steps per input; w, g and c by softplus

    Hasani, Lechner, Amini, Rus and Grosu, Liquid time-constant networks, AAAI 2021; LTCCell of ncps, fully connected,
    without masks. Δt is the input `dt` of a call, (B, T); 1 if it is not given. x_j = U x + b is a linear input
    current, which ncps does not have (U = 0). Each synapse has a sigmoid of its own, so the sum over i is no matrix
    product: the cell runs on the loop, and takes memory for B · H · (H + D) numbers per unfold. Not in torch.nn.

    >>> net = recur.Recurrent("ltc:unfolds=3", 3, 4)
    >>> net(torch.randn(2, 5, 3), dt=torch.rand(2, 5) + 0.1).outputs.shape
    torch.Size([2, 5, 4])
    """

    unfolds: int = 6

    name = "ltc"
    gates = ("v",)
    state_gates = ()
    inputs = {"dt": 1, "raw": "D"}
    extras = {
        **dict.fromkeys(("gleak", "vleak", "cm"), ("H",)),
        **dict.fromkeys(("w", "sigma", "mu", "erev"), ("H", "H")),
        **{f"sensory_{name}": ("D", "H") for name in ("w", "sigma", "mu", "erev")},
    }
    pointwise = False
    own_products = True

    def __post_init__(self) -> None:
        if not isinstance(self.unfolds, int) or isinstance(self.unfolds, bool) or self.unfolds < 1:
            raise OptionError(f"LTC: unfolds must be a whole number ≥ 1, got {self.unfolds!r}")

    def init_extras(self, weights: Weights) -> None:
        with torch.no_grad():
            for name in self.extras:
                if name.endswith("erev"):  # excitatory or inhibitory
                    weights[name].copy_(torch.randint_like(weights[name], 0, 2) * 2 - 1)
                else:
                    torch.nn.init.uniform_(weights[name], *RANGES[name])

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        sensory = softplus(w.sensory_w) * sigmoid(w.sensory_sigma * (x.raw[..., None] - w.sensory_mu))
        driven, opened = (sensory * w.sensory_erev).sum(-2) + x.v, sensory.sum(-2)
        leak, capacity = softplus(w.gleak), softplus(w.cm) * self.unfolds / x.dt
        v: Tensor = s.h
        for _ in range(self.unfolds):
            synapse = softplus(w.w) * sigmoid(w.sigma * (v[..., None] - w.mu))
            above = capacity * v + leak * w.vleak + (synapse * w.erev).sum(-2) + driven
            v = above / (capacity + leak + synapse.sum(-2) + opened + 1e-8)
        return (v,)
