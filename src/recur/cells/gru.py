"""Gated recurrent unit (GRU), with the reset gate applied after the recurrent product."""

from __future__ import annotations

from torch import sigmoid, tanh

from recur.cells.cell import Cell, State, Tensors


class GRU(Cell):
    """r = σ(x_r + h_r)   z = σ(x_z + h_z)
    n = tanh(x_n + r ⊙ h_n)
    h' = (1 − z) ⊙ n + z ⊙ h  =  n + z ⊙ (h − n)

    Cho et al., Learning phrase representations using RNN encoder–decoder, EMNLP 2014. The reset gate acts after the
    product with W, so all three products are one matmul. Same as torch.nn.GRU; `gru2014` is the cell of the paper. With
    r = 1 and z = 0 it is an Elman network: units with short memory open r, units with long memory open z.

    >>> net = recur.Recurrent("gru", 3, 4)
    >>> net.weight_hh_l0.shape          # W_r, W_z and W_n, stacked
    torch.Size([12, 4])
    """

    name = "gru"
    gates = ("r", "z", "n")
    forget_gate = "z"

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        r = sigmoid(x.r + h.r)
        z = sigmoid(x.z + h.z)
        n = tanh(x.n + r * h.n)
        return (n + z * (s.h - n),)  # one multiplication fewer than (1 − z) n + z h
