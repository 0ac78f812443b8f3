"""Long short-term memory whose sums are normalised over the layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, sigmoid, stack, tanh
from torch.nn.functional import layer_norm

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.cells.contract import check_options


@dataclass
class LNLSTM(Cell):
    """(i, f, g, o) = a_x ⊙ LN(x) + a_h ⊙ LN(h) + b,   LN(y) = (y − mean) / √(variance + 10⁻⁵)
    c' = σ(f) ⊙ c + σ(i) ⊙ tanh(g)
    h' = σ(o) ⊙ tanh(a_c ⊙ LN(c') + b_c)

    Ba, Kiros and Hinton, Layer normalization, 2016. x and h are the shares of all four gates, and LN of each is taken
    over all 4H numbers together, LN(c') over H: units see each other, so it is not pointwise and runs on the loop.
    b is the sum of the paper's two shifts and its bias. U x and W h bring biases of torch's names in too, inside LN,
    which the paper has not: they start where the scheme puts them, at zero for all but `torch`. The shift b of f
    starts at `forget_bias`, all gains at 1. torch.nn does not have it.

    >>> recur.Recurrent("lnlstm", 3, 4)(torch.randn(2, 5, 3)).state[0]._fields
    ('h', 'c')
    """

    forget_bias: float = 1.0

    name = "lnlstm"
    gates = ("i", "f", "g", "o")
    states = ("h", "c")
    extras = {"a_x": (4, "H"), "a_h": (4, "H"), "b": (4, "H"), "a_c": ("H",), "b_c": ("H",)}
    pointwise = False

    def __post_init__(self) -> None:
        check_options(self, forget_bias=float)

    def init_extras(self, weights: Weights) -> None:
        for name in ("a_x", "a_h", "a_c"):
            torch.nn.init.ones_(weights[name])
        for name in ("b", "b_c"):
            torch.nn.init.zeros_(weights[name])
        torch.nn.init.constant_(weights["b"][1], self.forget_bias)

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        sums = _normalised(x, w.a_x) + _normalised(h, w.a_h) + w.b
        i, f, g, o = sums.unbind(-2)
        c = sigmoid(f) * s.c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(layer_norm(c, c.shape[-1:], w.a_c, w.b_c)), c


def _normalised(shares: Tensors, gain: Tensor) -> Tensor:
    """LN over gates and units together, (…, 4, H)."""
    return layer_norm(stack(shares, dim=-2), gain.shape, gain)
