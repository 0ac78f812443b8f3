"""Mogrifier LSTM: input and state gate each other several times before the LSTM's step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, sigmoid, tanh
from torch.nn.functional import linear

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.errors import OptionError


@dataclass
class Mogrifier(Cell):
    """x ← 2σ(Q_k h) ⊙ x for odd k,   h ← 2σ(R_k x) ⊙ h for even k,   k = 1 … `rounds`
    then the LSTM, with U x and W h of these

    Melis, Kočiský and Blunsom, Mogrifier LSTM, ICLR 2020. Every round is a product that waits for the one before, and U
    and W follow them: rounds + 1 products in sequence per step. Q and R start near 0, where 2σ is 1. Not in torch.nn.

    >>> cell = recur.cells.Mogrifier(rounds=2)
    >>> cell.extras
    {'Q_1': ('D', 'H'), 'R_2': ('H', 'D')}
    """

    rounds: int = 5

    name = "mogrifier"
    gates = ("i", "f", "g", "o")
    states = ("h", "c")
    inputs = {"raw": "D"}
    pointwise = False
    own_products = True
    forget_gate = "f"
    input_gate = "i"

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, int) or isinstance(self.rounds, bool) or self.rounds < 1:
            raise OptionError(f"Mogrifier: rounds must be a whole number ≥ 1, got {self.rounds!r}")
        self.extras = {
            f"Q_{k}" if k % 2 else f"R_{k}": ("D", "H") if k % 2 else ("H", "D") for k in range(1, self.rounds + 1)
        }

    def init_extras(self, weights: Weights) -> None:
        for name in self.extras:
            torch.nn.init.normal_(weights[name], std=0.1 * weights[name].shape[-1] ** -0.5)

    def _gated(self, x: Tensor, h: Tensor, w: Tensors) -> tuple[Tensor, Tensor]:
        for k in range(1, self.rounds + 1):
            if k % 2:
                x = 2 * sigmoid(linear(h, getattr(w, f"Q_{k}"))) * x
            else:
                h = 2 * sigmoid(linear(x, getattr(w, f"R_{k}"))) * h
        return x, h

    def multiplied_input(self, x: Tensors, s: Tensors, w: Tensors) -> Tensor:
        return self._gated(x.raw, s.h, w)[0]

    def multiplied(self, x: Tensors, s: Tensors, w: Tensors) -> Tensor:
        return self._gated(x.raw, s.h, w)[1]

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        i = sigmoid(x.i + h.i)
        f = sigmoid(x.f + h.f)
        g = tanh(x.g + h.g)
        o = sigmoid(x.o + h.o)
        c = f * s.c + i * g
        return o * tanh(c), c
