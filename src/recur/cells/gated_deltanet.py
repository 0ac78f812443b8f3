"""Gated DeltaNet: the delta rule with a decay per head."""

from __future__ import annotations

from typing import Any

import torch
from torch import sigmoid
from torch.nn.functional import silu, softplus

from recur.cells.cell import Weights
from recur.cells.mamba2 import init_decay
from recur.cells.matrix import MatrixCell, head_norm, unit
from recur.cells.tensors import Tensors


class GatedDeltaNet(MatrixCell):
    """q = unit(silu(x_q)) / √K   k = unit(silu(x_k))   β = σ(x_b)   a = exp(−exp(A_log) softplus(x_a + dt_bias))
    S' = a S + k (β (v − a Sᵀ k))ᵀ
    h = norm(S'ᵀ q) ⊙ silu(x_g)       norm: RMSNorm per head, with a gain; unit: divided by its length

    Yang, Kautz and Hatamizadeh, Gated delta networks: improving Mamba2 with delta rule, ICLR 2025. The paper's
    short convolutions of q, k and v are not part of this cell. Not in torch.nn.

    >>> net = recur.Recurrent("gated_deltanet:num_heads=2", 3, 8)
    >>> outputs, state, trace = net(torch.randn(2, 100, 3))
    >>> outputs.shape, state[0].S.shape, trace[0].backend          # S: 2 heads of 4 × 4
    (torch.Size([2, 100, 8]), torch.Size([2, 32]), 'chunk')
    """

    name = "gated_deltanet"
    inputs = {"q": "K", "k": "K", "v": "V", "b": 1, "a": 1, "g": "V"}
    extras = {"A_log": ("heads", 1), "dt_bias": ("heads", 1), "norm": ("V",)}

    def init_extras(self, weights: Weights) -> None:
        init_decay(weights)
        torch.nn.init.ones_(weights["norm"])

    def step(self, x: Tensors, S: Any, w: Tensors) -> tuple[Any, Any]:
        k = unit(silu(x.k))
        S = S.scale(log=-torch.exp(w.A_log) * softplus(x.a + w.dt_bias))
        S = S.write(k, sigmoid(x.b) * (x.v - S.read(k)))
        o = S.read(unit(silu(x.q)) * x.q.shape[-1] ** -0.5)
        return S, head_norm(o, w.norm) * silu(x.g)
