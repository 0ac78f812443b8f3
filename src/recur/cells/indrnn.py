"""Independently recurrent network (IndRNN): each unit reads only its own previous value."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import relu

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.cells.contract import check_options
from recur.errors import OptionError


@dataclass
class IndRNN(Cell):
    """h' = ReLU(x_h + u ⊙ h)

    Li, Li, Cook, Zhu and Gao, Independently recurrent neural network (IndRNN), CVPR 2018. The recurrent matrix is
    diagonal, so the gradient of unit k over n steps is at most |u_k|ⁿ. u is initialised uniformly in [0, 1), as in the
    paper; units mix in the next layer only. Not in torch.nn.

    horizon: the number of steps T to remember, for long sequences, as in the paper. Then |u| is at most 2^(1/T), so
    a gradient at most doubles over T steps, and u is initialised uniformly in 2^(−1/T) … 2^(1/T).

    >>> recur.cells.IndRNN().shapes(3, 4)["u"]          # one weight per unit instead of W
    (4,)
    """

    horizon: int = 0

    name = "indrnn"
    gates = ("h",)
    state_gates = ()
    extras = {"u": ("H",)}

    def __post_init__(self) -> None:
        check_options(self, horizon=int)
        if self.horizon < 0:
            raise OptionError(f"IndRNN: horizon is a number of steps, got {self.horizon}")

    def init_extras(self, weights: Weights) -> None:
        if self.horizon:
            torch.nn.init.uniform_(weights["u"], 2 ** (-1 / self.horizon), 2 ** (1 / self.horizon))
        else:
            torch.nn.init.uniform_(weights["u"], 0.0, 1.0)

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        if not self.horizon:
            return (relu(x.h + w.u * s.h),)
        most = 2 ** (1 / self.horizon)
        return (relu(x.h + w.u.clamp(-most, most) * s.h),)
