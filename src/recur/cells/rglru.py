"""Real-gated linear recurrent unit (RG-LRU) of Griffin."""

from __future__ import annotations

import torch
from torch import Tensor, exp, expm1, sigmoid, sqrt
from torch.nn.functional import softplus

from recur.cells.cell import Cell, State, Tensors, Weights

SHARPNESS = 8.0
"""The paper's c."""
SMALLEST = 1e-30
"""Lower bound of 1 − a²: the derivative of its square root is infinite at 0. Below it a gets no gradient."""


class RGLRU(Cell):
    """r = σ(x_r)   i = σ(x_i)
    a = exp(−8 softplus(Λ) ⊙ r)
    h' = a ⊙ h + √(1 − a²) ⊙ (i ⊙ x_n)

    De et al., Griffin: mixing gated linear recurrences with local attention for efficient language models, 2024. The
    gates read the input only, and there is no W. r decides which fraction of its past a unit keeps: between 1 and
    exp(−8 softplus(Λ)), which is initialised uniformly in 0.9 … 0.999. In the paper the input itself, of H numbers,
    replaces x_n. The paper's code omits √(1 − a²) at the first step; this cell does not. Not in torch.nn.

    >>> net = recur.Recurrent("rglru", 3, 4)
    >>> bool((net(torch.zeros(1, 9, 3)).outputs.abs() < 10).all())
    True
    """

    name = "rglru"
    gates = ("r", "i", "n")
    state_gates = ()
    extras = {"Lambda": ("H",)}

    def init_extras(self, weights: Weights) -> None:
        with torch.no_grad():
            kept = torch.empty_like(weights["Lambda"]).uniform_(0.9, 0.999)
            weights["Lambda"].copy_(torch.log(expm1(-torch.log(kept) / SHARPNESS)))  # inverse of softplus

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        log_a = -SHARPNESS * softplus(w.Lambda) * sigmoid(x.r)
        room = (-expm1(2 * log_a)).clamp_min(_smallest(w.Lambda))  # 1 − a², exact where a is nearly 1
        return (exp(log_a) * s.h + sqrt(room) * (sigmoid(x.i) * x.n),)


def _smallest(like: object) -> float:
    """Return a bound that is positive in the dtype of a tensor. Compiled programs compute in float32 or float64."""
    if not isinstance(like, Tensor):
        return SMALLEST
    numbers = torch.finfo(like.dtype)
    return max(SMALLEST, numbers.tiny * numbers.eps)
