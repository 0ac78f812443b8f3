"""Minimal gated unit (MGU): a GRU with one gate for reset and update."""

from __future__ import annotations

from torch import sigmoid, tanh

from recur.cells.cell import Cell, State, Tensors


class MGU(Cell):
    """f = σ(x_f + h_f)
    n = tanh(x_n + f ⊙ h_n)
    h' = (1 − f) ⊙ h + f ⊙ n

    Zhou, Wu, Zhang and Zhou, Minimal gated unit for recurrent neural networks, IJAC 13 (2016). The paper has
    W_n (f ⊙ h); here f acts after the product, like the reset gate of torch's GRU, so that the step is pointwise. Not
    in torch.nn.

    >>> recur.cells.MGU().gates                         # one gate for reset and update
    ('f', 'n')
    """

    name = "mgu"
    gates = ("f", "n")
    input_gate = "f"

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        f = sigmoid(x.f + h.f)
        n = tanh(x.n + f * h.n)
        return ((1 - f) * s.h + f * n,)
