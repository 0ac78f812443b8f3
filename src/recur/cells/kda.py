"""Kimi delta attention (KDA): the delta rule with a decay for every key."""

from __future__ import annotations

from typing import Any

import torch
from torch import sigmoid
from torch.nn.functional import silu, softplus

from recur.cells.cell import Weights
from recur.cells.mamba2 import init_decay
from recur.cells.matrix import MatrixCell, head_norm, unit
from recur.cells.tensors import Tensors


class KDA(MatrixCell):
    """q = unit(silu(x_q)) / √K   k = unit(silu(x_k))   β = σ(x_b)   α = exp(−exp(A_log) softplus(x_a + dt_bias))
    S' = diag(α) S + k (β (v − (diag(α) S)ᵀ k))ᵀ
    h = norm(S'ᵀ q) ⊙ σ(x_g)          norm: RMSNorm per head, with a gain; unit: divided by its length

    Kimi Team, Kimi Linear: an expressive, efficient attention architecture, 2025. The paper's projections of a and g
    have low rank; these are full. Not in torch.nn.

    >>> recur.Recurrent("kda", 3, 4)(torch.randn(2, 50, 3)).trace[0].backend
    'chunk'
    """

    name = "kda"
    inputs = {"q": "K", "k": "K", "v": "V", "b": 1, "a": "K", "g": "V"}
    extras = {"A_log": ("heads", 1), "dt_bias": ("heads", "K"), "norm": ("V",)}

    def init_extras(self, weights: Weights) -> None:
        init_decay(weights)
        torch.nn.init.ones_(weights["norm"])

    def step(self, x: Tensors, S: Any, w: Tensors) -> tuple[Any, Any]:
        k = unit(silu(x.k))
        S = S.scale(log=-torch.exp(w.A_log) * softplus(x.a + w.dt_bias))
        S = S.write(k, sigmoid(x.b) * (x.v - S.read(k)))
        o = S.read(unit(silu(x.q)) * x.q.shape[-1] ** -0.5)
        return S, head_norm(o, w.norm) * sigmoid(x.g)
