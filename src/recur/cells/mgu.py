"""The minimal gated unit: a GRU whose two gates are one."""

from __future__ import annotations

from typing import Any

from torch import Tensor, sigmoid, tanh

from recur.cells.cell import Cell


class MGU(Cell):
    """f = σ(x_f + h_f)
    n = tanh(x_n + f ⊙ h_n)
    h' = (1 − f) ⊙ h + f ⊙ n

    Zhou, Wu, Zhang and Zhou, Minimal gated unit for recurrent neural networks, IJAC 13 (2016). The paper forms
    U_n (f ⊙ h); here f acts after the product, as reset does in torch's GRU, so that the step is pointwise.
    torch.nn does not have it.
    """

    name = "mgu"
    gates = ("f", "n")

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor, ...]:
        f = sigmoid(x.f + h.f)
        n = tanh(x.n + f * h.n)
        return ((1 - f) * s.h + f * n,)
