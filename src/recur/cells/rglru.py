"""The real-gated linear recurrent unit of Griffin."""

from __future__ import annotations

import torch
from torch import Tensor, exp, expm1, sigmoid, sqrt
from torch.nn.functional import softplus

from recur.cells.cell import Cell, State, Tensors, Weights

SHARPNESS = 8.0
"""The paper's c."""
SMALLEST = 1e-30
"""Of 1 − a², whose root has no slope at 0: below it no gradient flows to a."""


class RGLRU(Cell):
    """r = σ(x_r)   i = σ(x_i)
    a = exp(−8 softplus(Λ) ⊙ r)
    h' = a ⊙ h + √(1 − a²) ⊙ (i ⊙ x_n)

    De et al., Griffin: mixing gated linear recurrences with local attention for efficient language models, 2024. The
    gates see the input only: there is no W, and r decides how much of its own past a unit keeps, between all of it and
    exp(−8 softplus(Λ)), which starts uniform in 0.9 … 0.999. The paper's input has H numbers and stands where x_n
    does, a projection here; and its code leaves out √(1 − a²) at the first step, which this does not. torch.nn does
    not have it.

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
            weights["Lambda"].copy_(torch.log(expm1(-torch.log(kept) / SHARPNESS)))  # softplus turned round

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        log_a = -SHARPNESS * softplus(w.Lambda) * sigmoid(x.r)
        room = (-expm1(2 * log_a)).clamp_min(_smallest(w.Lambda))  # 1 − a², exact where a is nearly 1
        return (exp(log_a) * s.h + sqrt(room) * (sigmoid(x.i) * x.n),)


def _smallest(like: object) -> float:
    """More than 0 in the tensor's dtype too. A program is read of no dtype: it computes in float32 at least."""
    if not isinstance(like, Tensor):
        return SMALLEST
    numbers = torch.finfo(like.dtype)
    return max(SMALLEST, numbers.tiny * numbers.eps)
