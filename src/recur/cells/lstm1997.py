"""Long short-term memory (LSTM) of 1997, without forget gate."""

from __future__ import annotations

from torch import sigmoid, tanh

from recur.cells.cell import Cell, State, Tensors


class LSTM1997(Cell):
    """i = σ(x_i + h_i)   g = tanh(x_g + h_g)   o = σ(x_o + h_o)
    c' = c + i ⊙ g
    h' = o ⊙ tanh(c')

    Hochreiter and Schmidhuber, Long short-term memory, Neural Computation 9 (1997): the constant error carousel.
    ∂c'/∂c along the memory is exactly 1, so this gradient never vanishes. The paper squashes with 4σ − 2 and 2σ − 1;
    here both are tanh. Not in torch.nn; it is torch.nn.LSTM with f = 1.

    >>> recur.cells.LSTM1997().gates                    # no forget gate
    ('i', 'g', 'o')
    """

    name = "lstm1997"
    gates = ("i", "g", "o")
    states = ("h", "c")

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        i = sigmoid(x.i + h.i)
        g = tanh(x.g + h.g)
        o = sigmoid(x.o + h.o)
        c = s.c + i * g
        return o * tanh(c), c
