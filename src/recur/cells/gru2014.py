"""Gated recurrent unit (GRU) of 2014, with the reset gate applied before the recurrent product."""

from __future__ import annotations

from torch import sigmoid, tanh
from torch.nn.functional import linear

from recur.cells.cell import Cell, State, Tensors


class GRU2014(Cell):
    """r = σ(x_r + h_r)   z = σ(x_z + h_z)
    n = tanh(x_n + W_n (r ⊙ h))
    h' = (1 − z) ⊙ n + z ⊙ h

    Cho et al., Learning phrase representations using RNN encoder–decoder, EMNLP 2014. The product W_n (r ⊙ h) is inside
    the step and mixes units: the cell is not pointwise and has two products in sequence. W_n is an extra weight;
    weight_hh holds the blocks of r and z. Not in torch.nn; in Keras it is GRU(reset_after=False).

    >>> cell = recur.cells.GRU2014()
    >>> cell.pointwise, cell.extras     # a second product inside the step
    (False, {'W_n': ('H', 'H')})
    """

    name = "gru2014"
    gates = ("r", "z", "n")
    state_gates = ("r", "z")
    extras = {"W_n": ("H", "H")}
    pointwise = False
    own_products = True
    forget_gate = "z"

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        r = sigmoid(x.r + h.r)
        z = sigmoid(x.z + h.z)
        n = tanh(x.n + linear(r * s.h, w.W_n))
        return ((1 - z) * n + z * s.h,)
