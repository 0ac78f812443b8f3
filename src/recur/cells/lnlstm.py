"""Long short-term memory (LSTM) with layer normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, sigmoid, tanh
from torch.nn.functional import layer_norm

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.cells.contract import check_options


@dataclass
class LNLSTM(Cell):
    """(i, f, g, o) = a_x ⊙ LN(x) + a_h ⊙ LN(h) + b,   LN(y) = (y − mean) / √(variance + 10⁻⁵)
    c' = σ(f) ⊙ c + σ(i) ⊙ tanh(g)
    h' = σ(o) ⊙ tanh(a_c ⊙ LN(c') + b_c)

    Ba, Kiros and Hinton, Layer normalization, 2016. x and h are the projections of all four gates; LN of each is over
    all 4H numbers, LN(c') over H. Units read each other, so the cell is not pointwise: reductions are stages of its
    step. b is the sum of the paper's two shifts and its bias. U x and W h also have torch's biases, inside LN, which
    the paper does not have; every initialisation scheme except `torch` starts them at zero. The shift b of f starts at
    `forget_bias`, all gains at 1. Not in torch.nn.

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
        of_x, of_h = _normalised(x), _normalised(h)
        i, f, g, o = (w.a_x[k] * of_x[k] + w.a_h[k] * of_h[k] + w.b[k] for k in range(4))
        c = sigmoid(f) * s.c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(layer_norm(c, c.shape[-1:], w.a_c, w.b_c)), c


def _normalised(parts: Tensors) -> list[Tensor]:
    """Normalise over all four gates and all units."""
    a, b, c, d = (part.mean(-1, keepdim=True) for part in parts)
    centred = [part - (a + b + c + d) / 4 for part in parts]
    a, b, c, d = ((part * part).mean(-1, keepdim=True) for part in centred)
    return [part / torch.sqrt((a + b + c + d) / 4 + 1e-5) for part in centred]
