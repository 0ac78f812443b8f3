"""Scalar LSTM (sLSTM) of xLSTM: exponential gates, a normaliser state, and heads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import exp, maximum, sigmoid, tanh
from torch.nn.functional import logsigmoid

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.errors import OptionError, unknown

FORGETS = ("sigmoid", "exp")


@dataclass
class SLSTM(Cell):
    """i = exp(x_i + h_i)   f = σ(x_f + h_f), or exp   z = tanh(x_z + h_z)   o = σ(x_o + h_o)
    c' = f ⊙ c + i ⊙ z
    n' = f ⊙ n + i
    h' = o ⊙ c' / n'

    Beck et al., xLSTM: extended long short-term memory, NeurIPS 2024. An exponential gate is unbounded and can
    overwrite all earlier contents. For numerical stability c and n are stored divided by e^m, with m' = max(log f + m,
    log i) and an initial m of −∞; c' / n' does not change. n ≥ 1 after the first step. `heads` divides the units into
    groups: W has one block per head, and units of different heads mix in the next layer only. The biases of the forget
    gate start from 5 down to −7 within a head, as in the authors' code for a single block (with `forget="exp"`, like
    all other biases). Not in torch.nn.

    >>> cell = recur.cells.SLSTM(heads=2)
    >>> cell.shapes(3, 8)["weight_hh"]                  # one block of W per head
    (32, 4)
    """

    heads: int = 1
    forget: str = "sigmoid"

    name = "slstm"
    gates = ("i", "f", "z", "o")
    states = ("h", "c", "n", "m")
    initial = {"m": -math.inf}
    forget_gate = "f"

    def __post_init__(self) -> None:
        if self.forget not in FORGETS:
            raise OptionError(f"SLSTM: {unknown('forget gate', self.forget, FORGETS)}")
        if self.forget == "exp":  # already 1 at input 0: a positive bias would let the state grow
            self.forget_gate = None  # type: ignore[assignment]

    def init_extras(self, weights: Weights) -> None:
        if "bias_ih" in weights and self.forget == "sigmoid":
            b, b_h = (weights[name].unflatten(0, (4, self.heads, -1))[1] for name in ("bias_ih", "bias_hh"))
            with torch.no_grad():
                b.copy_(5 - 12 * torch.linspace(0, 1, b.shape[-1], dtype=b.dtype, device=b.device) ** 0.3)
                b_h.zero_()

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        log_i = x.i + h.i
        log_f = logsigmoid(x.f + h.f) if self.forget == "sigmoid" else x.f + h.f
        m = maximum(log_f + s.m, log_i)
        i = exp(log_i - m)
        f = exp(log_f + s.m - m)
        c = f * s.c + i * tanh(x.z + h.z)
        n = f * s.n + i
        return sigmoid(x.o + h.o) * (c / n), c, n, m
