"""The simple recurrent network: one layer of units that sees its own past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recur.cells.cell import Cell
from recur.errors import OptionError, unknown

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


@dataclass
class Elman(Cell):
    """h' = φ(x_h + h_h),   φ = tanh, ReLU or σ

    Elman, Finding structure in time, Cognitive Science 14 (1990). In the notes: h_t = φ(U x_t + W h_{t−1} + b),
    where the input matrix is U and the recurrent one W; here, as in torch.nn, they are weight_ih and weight_hh.
    As torch.nn.RNN; torch has no σ.
    """

    activation: str = "tanh"

    name = "elman"
    gates = ("h",)

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise OptionError(f"Elman: {unknown('activation', self.activation, ACTIVATIONS)}")

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor, ...]:
        return (ACTIVATIONS[self.activation](x.h + h.h),)
