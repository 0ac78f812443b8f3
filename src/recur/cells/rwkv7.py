"""RWKV-7 (Goose): a generalised delta rule with a decay and a learning rate for every key."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import sigmoid

from recur.cells.cell import Weights
from recur.cells.matrix import MatrixCell, head_norm, unit
from recur.cells.tensors import Tensors


class RWKV7(MatrixCell):
    """α = exp(−e^(−½) σ(x_w))   a = σ(x_a)   κ = unit(k_k ⊙ x_k)   k = x_k ⊙ (1 + (a − 1) ⊙ k_a)
    S' = diag(α) S − (a ⊙ κ) (Sᵀ κ)ᵀ + k vᵀ
    o = norm(S'ᵀ r) + (Σ r ⊙ r_k ⊙ k) v
    h = o ⊙ x_g                       norm: RMSNorm per head, with a gain; unit: divided by its length

    Peng et al., RWKV-7 "Goose" with expressive dynamic state evolution, 2025. The paper also mixes each token with the
    one before it (token shift), which this cell does not; its projections of w, a and g have low
    rank, its normalisation is a LayerNorm per head, and upper layers mix v with that of the first. Not in torch.nn.

    >>> recur.Recurrent("rwkv7", 3, 4)(torch.randn(2, 50, 3)).outputs.shape
    torch.Size([2, 50, 4])
    """

    name = "rwkv7"
    inputs = {"r": "K", "k": "K", "v": "V", "w": "K", "a": "K", "g": "V"}
    extras = {"k_k": ("heads", "K"), "k_a": ("heads", "K"), "r_k": ("heads", "K"), "norm": ("V",)}

    def init_extras(self, weights: Weights) -> None:
        for name in ("k_k", "k_a", "norm"):
            torch.nn.init.ones_(weights[name])
        torch.nn.init.normal_(weights["r_k"], std=0.1)

    def step(self, x: Tensors, S: Any, w: Tensors) -> tuple[Any, Any]:
        a = sigmoid(x.a)
        removed = unit(w.k_k * x.k)
        k = x.k * (1 + (a - 1) * w.k_a)
        held = S.read(removed)
        S = S.scale(log=-math.exp(-0.5) * sigmoid(x.w)).write(-a * removed, held).write(k, x.v)
        o = head_norm(S.read(x.r), w.norm) + (x.r * w.r_k * k).sum(-1, keepdim=True) * x.v
        return S, o * x.g
