"""Multiplicative LSTM: the recurrent matrix depends on the input."""

from __future__ import annotations

from torch import Tensor, sigmoid, tanh
from torch.nn.functional import linear

from recur.cells.cell import Cell, State, Tensors


class MultiplicativeLSTM(Cell):
    """m = x_m ⊙ M h
    i = σ(x_i + m_i)   f = σ(x_f + m_f)   g = tanh(x_g + m_g)   o = σ(x_o + m_o)     with m_i = W_i m + b_hi
    c' = f ⊙ c + i ⊙ g
    h' = o ⊙ tanh(c')

    Krause, Lu, Murray and Renals, Multiplicative LSTM for sequence modelling, 2016. Every input has its own transition
    matrix W diag(x_m) M, in factored form: two products in sequence. This is not the mLSTM of xLSTM, which has a matrix
    memory. Not in torch.nn.

    >>> cell = recur.cells.MultiplicativeLSTM()
    >>> cell.extras, cell.pointwise                     # M is applied to the state before W
    ({'M': ('H', 'H')}, False)
    """

    name = "multiplicative_lstm"
    gates = ("i", "f", "g", "o", "m")
    state_gates = ("i", "f", "g", "o")
    states = ("h", "c")
    extras = {"M": ("H", "H")}
    pointwise = False
    forget_gate = "f"
    input_gate = "i"

    def multiplied(self, x: Tensors, s: Tensors, w: Tensors) -> Tensor:
        return x.m * linear(s.h, w.M)

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        i = sigmoid(x.i + h.i)
        f = sigmoid(x.f + h.f)
        g = tanh(x.g + h.g)
        o = sigmoid(x.o + h.o)
        c = f * s.c + i * g
        return o * tanh(c), c
