"""The minimal GRU: gates that look at the input only."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, sigmoid, where

from recur.cells.cell import Cell, State, Tensors
from recur.cells.contract import check_options


def positive_part(a: Tensor) -> Tensor:
    """g(a) = a + ½ for a ≥ 0, σ(a) below: positive everywhere, and continuous."""
    return where(a >= 0, a + 0.5, sigmoid(a))


@dataclass
class MinGRU(Cell):
    """z = σ(x_z)
    h' = (1 − z) ⊙ h + z ⊙ x_n

    Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, Were RNNs all we needed?, 2024. Nothing inside the step depends
    on h but the average itself: there is no W, and ∂h'/∂h = 1 − z whatever the state. With `positive`, g(x_n) stands
    for x_n, g(a) = a + ½ for a ≥ 0 and σ(a) below, as in the authors' code, which computes in logarithms.
    torch.nn does not have it.

    >>> net = recur.Recurrent("mingru", 3, 4, backend="parallel")    # affine in its state: all of time at once
    >>> net(torch.randn(2, 500, 3)).trace[0].backend
    'parallel'
    """

    positive: bool = False

    name = "mingru"
    gates = ("z", "n")
    state_gates = ()
    input_gate = "z"

    def __post_init__(self) -> None:
        check_options(self, positive=bool)

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        z = sigmoid(x.z)
        return ((1 - z) * s.h + z * (positive_part(x.n) if self.positive else x.n),)
