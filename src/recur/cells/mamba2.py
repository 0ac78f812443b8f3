"""Mamba-2 (SSD): a selective state space model with one decay per head."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.functional import silu, softplus

from recur.cells.cell import Weights
from recur.cells.matrix import MatrixCell, head_norm
from recur.cells.tensors import Tensors


def init_decay(weights: Weights) -> None:
    """Draw A uniformly from 1 … 16, and the bias of Δ: softplus of it is in 0.001 … 0.1, even in its logarithm."""
    with torch.no_grad():
        weights["A_log"].uniform_(1, 16).log_()
        dt = weights["dt_bias"].uniform_(math.log(1e-3), math.log(0.1)).exp_()
        dt.add_(torch.log(-torch.expm1(-dt)))  # the inverse of softplus


class Mamba2(MatrixCell):
    """Δ = softplus(x_dt + dt_bias)
    S' = exp(−exp(A_log) Δ) S + B (Δ x_v)ᵀ
    o = S'ᵀ C + D x_v
    h = norm(o ⊙ silu(x_z))           norm: RMSNorm per head, with a gain

    Dao and Gu, Transformers are SSMs: generalized models and efficient algorithms through structured state space
    duality, ICML 2024. B and C are shared by all heads. The paper's short convolution is not part of this cell.
    Not in torch.nn.

    >>> recur.make_cell("mamba2:num_heads=2").shapes(3, 8)["weight_ih"]     # v, B, C, Δ and z
    (26, 3)
    """

    name = "mamba2"
    inputs = {"v": "V", "B": "K", "C": "K", "dt": 1, "z": "V"}
    shared = ("B", "C")
    extras = {"A_log": ("heads", 1), "dt_bias": ("heads", 1), "D": ("heads", 1), "norm": ("V",)}

    def init_extras(self, weights: Weights) -> None:
        init_decay(weights)
        torch.nn.init.ones_(weights["D"])
        torch.nn.init.ones_(weights["norm"])

    def step(self, x: Tensors, S: Any, w: Tensors) -> tuple[Any, Any]:
        dt = softplus(x.dt + w.dt_bias)
        S = S.scale(log=-torch.exp(w.A_log) * dt).write(x.B, dt * x.v)
        return S, head_norm((S.read(x.C) + w.D * x.v) * silu(x.z), w.norm)
