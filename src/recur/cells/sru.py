"""Simple recurrent unit (SRU): no matmul inside the loop, and a highway connection around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import sigmoid

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.cells.contract import check_options


@dataclass
class SRU(Cell):
    """f = σ(x_f + v_f ⊙ c)   r = σ(x_r + v_r ⊙ c)
    c' = f ⊙ c + (1 − f) ⊙ x_n
    h' = r ⊙ c' + (1 − r) ⊙ α x_x,   α = √(1 + 2 e^b)

    Lei, Zhang, Wang, Dai and Artzi, Simple recurrent units for highly parallelizable recurrence, EMNLP 2018. No W: the
    gates of a unit read its own memory through v; with `peephole=False` they do not, and c is affine in its past. x_x
    is the input of the highway connection, a projection of x, as in the authors' code for D ≠ H. For D = H their code
    uses x itself, which is the identity projection. α keeps the variance of h equal to that of x when r starts at its
    bias b (`highway_bias`). Not in torch.nn.

    >>> net = recur.Recurrent("sru", 4, 4)
    >>> net(torch.randn(2, 5, 4)).state[0]._fields
    ('h', 'c')
    """

    peephole: bool = True
    highway_bias: float = 0.0

    name = "sru"
    gates = ("n", "f", "r", "x")
    state_gates = ()
    states = ("h", "c")
    extras = {"v_f": ("H",), "v_r": ("H",)}
    forget_gate = "f"

    def __post_init__(self) -> None:
        check_options(self, peephole=bool, highway_bias=float)
        if not self.peephole:
            self.extras = {}

    def init_extras(self, weights: Weights) -> None:
        for name in self.extras:  # a variance of ½, as in the authors' code
            torch.nn.init.uniform_(weights[name], -math.sqrt(1.5), math.sqrt(1.5))
        if "bias_ih" in weights:
            torch.nn.init.constant_(weights["bias_ih"].chunk(4)[2], self.highway_bias)

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors | None = None) -> State:
        f, r = (x.f, x.r) if w is None else (x.f + w.v_f * s.c, x.r + w.v_r * s.c)
        f, r = sigmoid(f), sigmoid(r)
        c = f * s.c + (1 - f) * x.n
        alpha = math.sqrt(1 + 2 * math.exp(self.highway_bias))
        return r * c + (1 - r) * (alpha * x.x), c
