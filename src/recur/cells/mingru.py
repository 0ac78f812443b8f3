"""The minimal GRU: gates that look at the input only."""

from __future__ import annotations

from torch import sigmoid

from recur.cells.cell import Cell, State, Tensors


class MinGRU(Cell):
    """z = σ(x_z)
    h' = (1 − z) ⊙ h + z ⊙ x_n

    Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, Were RNNs all we needed?, 2024. Nothing inside the step depends
    on h but the average itself: there is no W, and ∂h'/∂h = 1 − z whatever the state. torch.nn does not have it.
    """

    name = "mingru"
    gates = ("z", "n")
    state_gates = ()

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        z = sigmoid(x.z)
        return ((1 - z) * s.h + z * x.n,)
