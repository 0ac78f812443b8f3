"""The minimal gated unit: a GRU whose two gates are one."""

from __future__ import annotations

from torch import sigmoid, tanh

from recur.cells.cell import Cell, State, Tensors


class MGU(Cell):
    """f = σ(x_f + h_f)
    n = tanh(x_n + f ⊙ h_n)
    h' = (1 − f) ⊙ h + f ⊙ n

    Zhou, Wu, Zhang and Zhou, Minimal gated unit for recurrent neural networks, IJAC 13 (2016). The paper forms
    W_n (f ⊙ h); here f acts after the product, as reset does in torch's GRU, so that the step is pointwise.
    torch.nn does not have it.

    >>> recur.cells.MGU().gates                         # one gate forgets and resets
    ('f', 'n')
    """

    name = "mgu"
    gates = ("f", "n")
    input_gate = "f"

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        f = sigmoid(x.f + h.f)
        n = tanh(x.n + f * h.n)
        return ((1 - f) * s.h + f * n,)
