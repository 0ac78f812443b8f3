"""The independently recurrent network: each unit sees only its own past."""

from __future__ import annotations

import torch
from torch import relu

from recur.cells.cell import Cell, State, Tensors, Weights


class IndRNN(Cell):
    """h' = ReLU(x_h + u ⊙ h)

    Li, Li, Cook, Zhu and Gao, Independently recurrent neural network (IndRNN), CVPR 2018. The recurrent matrix is
    the diagonal u, so the gradient of unit k over n steps is at most |u_k|ⁿ: it can be read off, and bounded.
    u starts uniform in [0, 1), as in the paper; units mix in the next layer only. torch.nn does not have it.

    >>> recur.cells.IndRNN().shapes(3, 4)["u"]          # one weight for each unit in the place of W
    (4,)
    """

    name = "indrnn"
    gates = ("h",)
    state_gates = ()
    extras = {"u": ("H",)}

    def init_extras(self, weights: Weights) -> None:
        torch.nn.init.uniform_(weights["u"], 0.0, 1.0)

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        return (relu(x.h + w.u * s.h),)
