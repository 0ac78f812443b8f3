"""Elman network (simple recurrent network)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from recur.cells.cell import Cell, State, Tensors
from recur.errors import OptionError, unknown

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


@dataclass
class Elman(Cell):
    """h' = φ(x_h + h_h),   φ = tanh, ReLU or σ

    Elman, Finding structure in time, Cognitive Science 14 (1990): h_t = φ(U x_t + W h_{t−1} + b). Same as torch.nn.RNN,
    where U is weight_ih and W weight_hh; torch has no σ.

    >>> ours, theirs = recur.Recurrent("elman", 3, 4), torch.nn.RNN(3, 4, batch_first=True)
    >>> _ = ours.load_state_dict(theirs.state_dict())
    >>> x = torch.randn(2, 5, 3)
    >>> torch.allclose(ours(x).outputs, theirs(x)[0], atol=1e-6)
    True
    """

    activation: str = "tanh"

    name = "elman"
    gates = ("h",)

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise OptionError(f"Elman: {unknown('activation', self.activation, ACTIVATIONS)}")

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        return (ACTIVATIONS[self.activation](x.h + h.h),)
