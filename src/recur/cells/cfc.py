"""Closed-form continuous-time network (CfC): the state at any time between two inputs by a formula."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import sigmoid, tanh
from torch.nn.functional import linear

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.errors import OptionError, unknown

MODES = ("default", "no_gate")


@dataclass
class CfC(Cell):
    """b = 1.7159 tanh(0.666 (x_b + h_b))
    f = tanh(F b + k_f)   g = tanh(G b + k_g)   t = σ((A b + k_a) Δt + B b + k_b)
    h' = (1 − t) ⊙ f + t ⊙ g               (mode="no_gate": f + t ⊙ g)

    Hasani et al., Closed-form continuous-time neural networks, Nature Machine Intelligence 4 (2022); CfCCell of ncps
    with one backbone layer of H units. Δt is the time since the previous step, the input `dt` of a call, (B, T); 1 if
    it is not given. Two products in sequence per step. Not in torch.nn.

    >>> net = recur.Recurrent("cfc", 3, 4)
    >>> net(torch.randn(2, 5, 3), dt=torch.rand(2, 5)).outputs.shape
    torch.Size([2, 5, 4])
    """

    mode: str = "default"

    name = "cfc"
    gates = ("b",)
    inputs = {"dt": 1}
    extras = dict.fromkeys("FGAB", ("H", "H")) | {f"k_{name}": ("H",) for name in "fgab"}
    pointwise = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise OptionError(f"CfC: {unknown('mode', self.mode, MODES)}")

    def init_extras(self, weights: Weights) -> None:
        for name in "FGAB":
            torch.nn.init.xavier_uniform_(weights[name])
        for name in "fgab":
            torch.nn.init.zeros_(weights[f"k_{name}"])

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        b = 1.7159 * tanh(0.666 * (x.b + h.b))
        f = tanh(linear(b, w.F, w.k_f))
        g = tanh(linear(b, w.G, w.k_g))
        t = sigmoid(linear(b, w.A, w.k_a) * x.dt + linear(b, w.B, w.k_b))
        return (f + t * g if self.mode == "no_gate" else (1 - t) * f + t * g,)
