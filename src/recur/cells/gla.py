"""Gated linear attention (GLA): a forget gate for every key."""

from __future__ import annotations

from typing import Any

from torch.nn.functional import logsigmoid, silu

from recur.cells.matrix import MatrixCell, head_norm
from recur.cells.tensors import Tensors


class GLA(MatrixCell):
    """α = σ(x_a)^(1/16)
    S' = diag(α) S + k vᵀ
    o = S'ᵀ q / √K
    h = norm(o) ⊙ silu(x_g)           norm: RMSNorm per head

    Yang, Wang, Shen, Panda and Kim, Gated linear attention transformers with hardware-efficient training, ICML 2024.
    The paper's projection of a has low rank; this one is full. Not in torch.nn.

    >>> recur.Recurrent("gla", 3, 4)(torch.randn(2, 50, 3)).trace[0].backend
    'chunk'
    """

    name = "gla"
    inputs = {"q": "K", "k": "K", "v": "V", "a": "K", "g": "V"}

    def step(self, x: Tensors, S: Any) -> tuple[Any, Any]:
        S = S.scale(log=logsigmoid(x.a) / 16).write(x.k, x.v)
        return S, head_norm(S.read(x.q * x.q.shape[-1] ** -0.5)) * silu(x.g)
