"""Minimal LSTM (minLSTM): gates that read the input only and sum to 1."""

from __future__ import annotations

from dataclasses import dataclass

from torch import sigmoid
from torch.nn.functional import logsigmoid

from recur.cells.cell import Cell, State, Tensors
from recur.cells.contract import check_options
from recur.cells.mingru import positive_part


@dataclass
class MinLSTM(Cell):
    """f = σ(x_f) / (σ(x_f) + σ(x_i))
    h' = f ⊙ h + (1 − f) ⊙ x_n

    Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, Were RNNs all we needed?, 2024: an LSTM without output gate, whose
    gates read the input only and sum to 1. f is computed as σ(log σ(x_f) − log σ(x_i)), which is equal and cannot be
    0 / 0. `positive` as in MinGRU. Not in torch.nn.

    >>> recur.cells.MinLSTM().state_gates               # no recurrent projection
    ()
    """

    positive: bool = False

    name = "minlstm"
    gates = ("f", "i", "n")
    state_gates = ()
    forget_gate = "f"
    input_gate = "i"

    def __post_init__(self) -> None:
        check_options(self, positive=bool)

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        f = sigmoid(logsigmoid(x.f) - logsigmoid(x.i))
        return (f * s.h + (1 - f) * (positive_part(x.n) if self.positive else x.n),)
