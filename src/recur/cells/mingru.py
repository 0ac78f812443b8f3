"""Minimal GRU (minGRU): a GRU whose gate reads the input only."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, sigmoid, where

from recur.cells.cell import Cell, State, Tensors
from recur.cells.contract import check_options


def positive_part(a: Tensor) -> Tensor:
    """Return g(a) = a + ½ for a ≥ 0, σ(a) for a < 0: positive and continuous."""
    return where(a >= 0, a + 0.5, sigmoid(a))


@dataclass
class MinGRU(Cell):
    """z = σ(x_z)
    h' = (1 − z) ⊙ h + z ⊙ x_n

    Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, Were RNNs all we needed?, 2024. There is no W: only the average reads
    h, and ∂h'/∂h = 1 − z for every state. With `positive`, g(x_n) replaces x_n, g(a) = a + ½ for a ≥ 0 and σ(a)
    for a < 0, as in the authors' code, which computes in logarithms. Not in torch.nn.

    >>> net = recur.Recurrent("mingru", 3, 4, backend="parallel")    # affine in its state: all steps in parallel
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
