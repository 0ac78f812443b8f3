"""Long short-term memory (LSTM) with forget gate."""

from __future__ import annotations

from torch import sigmoid, tanh

from recur.cells.cell import Cell, State, Tensors


class LSTM(Cell):
    """i = σ(x_i + h_i)   f = σ(x_f + h_f)   g = tanh(x_g + h_g)   o = σ(x_o + h_o)
    c' = f ⊙ c + i ⊙ g
    h' = o ⊙ tanh(c')

    Hochreiter and Schmidhuber, Long short-term memory, Neural Computation 9 (1997), with the forget gate of
    Gers, Schmidhuber and Cummins, Learning to forget, Neural Computation 12 (2000). Same as torch.nn.LSTM. From step to
    step the memory c is only multiplied by f: with f near 1 its gradient neither vanishes nor explodes.

    >>> net = recur.Recurrent("lstm", 3, 4, init=recur.nn.Init(forget_bias=1.0))
    >>> outputs, (state,), _ = net(torch.randn(2, 5, 3))
    >>> torch.equal(outputs[:, -1], state.h), state.c.shape
    (True, torch.Size([2, 4]))
    """

    name = "lstm"
    gates = ("i", "f", "g", "o")
    states = ("h", "c")
    forget_gate = "f"
    input_gate = "i"

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        i = sigmoid(x.i + h.i)
        f = sigmoid(x.f + h.f)
        g = tanh(x.g + h.g)
        o = sigmoid(x.o + h.o)
        c = f * s.c + i * g
        return o * tanh(c), c
