"""The minimal GRU: gates that look at the input only."""

from __future__ import annotations

from typing import Any

from torch import Tensor, sigmoid

from recur.cells.cell import Cell


class MinGRU(Cell):
    """z = σ(x_z)
    h' = (1 − z) ⊙ h + z ⊙ x_n

    Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, Were RNNs all we needed?, 2024. Nothing inside the step depends
    on h but the average itself: there is no U, and ∂h'/∂h = 1 − z whatever the state. torch.nn does not have it.
    """

    name = "mingru"
    gates = ("z", "n")
    state_gates = ()

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor, ...]:
        z = sigmoid(x.z)
        return ((1 - z) * s.h + z * x.n,)
