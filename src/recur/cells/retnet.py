"""Retentive network (RetNet): linear attention with a fixed decay per head."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import silu

from recur.cells.matrix import MatrixCell, head_norm
from recur.cells.tensors import Tensors


class RetNet(MatrixCell):
    """S' = γ S + k vᵀ                 γ_j = 1 − 2^(−5 − j) for head j = 0, 1, …
    o = S'ᵀ q / √K
    h = norm(o) ⊙ silu(x_g)           norm: RMSNorm per head

    Sun et al., Retentive network: a successor to transformer for large language models, 2023. Without the paper's
    rotation of q and k by position. Not in torch.nn.

    >>> recur.Recurrent("retnet:num_heads=2", 3, 8)(torch.randn(2, 50, 3)).outputs.shape
    torch.Size([2, 50, 8])
    """

    name = "retnet"
    inputs = {"q": "K", "k": "K", "v": "V", "g": "V"}

    def step(self, x: Tensors, S: Any) -> tuple[Any, Any]:
        heads, K = x.q.shape[-2:]
        j = torch.arange(heads, dtype=x.q.dtype, device=x.q.device)[:, None]
        S = S.scale(log=torch.log1p(-torch.exp2(-5 - j))).write(x.k, x.v)
        return S, head_norm(S.read(x.q * K**-0.5)) * silu(x.g)
