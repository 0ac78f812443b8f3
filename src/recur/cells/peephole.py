"""Peephole LSTM: gates that also read the memory."""

from __future__ import annotations

from torch import sigmoid, tanh

from recur.cells.cell import Cell, State, Tensors


class PeepholeLSTM(Cell):
    """i = σ(x_i + h_i + p_i ⊙ c)   f = σ(x_f + h_f + p_f ⊙ c)   g = tanh(x_g + h_g)
    c' = f ⊙ c + i ⊙ g
    o = σ(x_o + h_o + p_o ⊙ c')
    h' = o ⊙ tanh(c')

    Gers, Schraudolph and Schmidhuber, Learning precise timing with LSTM recurrent networks, JMLR 3 (2002).
    The peephole weights p are vectors: a unit reads its own memory only. Not in torch.nn; with p = 0 it is
    torch.nn.LSTM.

    >>> sorted(recur.cells.PeepholeLSTM().extras)       # peephole weights
    ['p_f', 'p_i', 'p_o']
    """

    name = "peephole"
    gates = ("i", "f", "g", "o")
    states = ("h", "c")
    extras = {"p_i": ("H",), "p_f": ("H",), "p_o": ("H",)}
    forget_gate = "f"
    input_gate = "i"

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        i = sigmoid(x.i + h.i + w.p_i * s.c)
        f = sigmoid(x.f + h.f + w.p_f * s.c)
        g = tanh(x.g + h.g)
        c = f * s.c + i * g
        o = sigmoid(x.o + h.o + w.p_o * c)
        return o * tanh(c), c
