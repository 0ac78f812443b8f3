"""The gated recurrent unit, its reset applied after the product."""

from __future__ import annotations

from torch import sigmoid, tanh

from recur.cells.cell import Cell, State, Tensors


class GRU(Cell):
    """r = σ(x_r + h_r)   z = σ(x_z + h_z)
    n = tanh(x_n + r ⊙ h_n)
    h' = (1 − z) ⊙ n + z ⊙ h  =  n + z ⊙ (h − n)

    Cho et al., Learning phrase representations using RNN encoder–decoder, EMNLP 2014, in the form whose reset
    acts after the product with W, which lets all three products be one. As torch.nn.GRU. The paper's own form is
    `gru2014`. With r = 1 and z = 0 it is an Elman network: a unit with a short memory opens r, one with a long
    memory opens z.

    >>> net = recur.Recurrent("gru", 3, 4)
    >>> net.weight_hh_l0.shape          # W_r, W_z and W_n, one below the other
    torch.Size([12, 4])
    """

    name = "gru"
    gates = ("r", "z", "n")
    forget_gate = "z"

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        r = sigmoid(x.r + h.r)
        z = sigmoid(x.z + h.z)
        n = tanh(x.n + r * h.n)
        return (n + z * (s.h - n),)  # one product less than as the paper writes it
