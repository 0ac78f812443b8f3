"""RWKV-6 (Finch): a decay for every key, and a bonus for the present token."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import silu

from recur.cells.cell import Weights
from recur.cells.matrix import MatrixCell, head_norm
from recur.cells.tensors import Tensors


class RWKV6(MatrixCell):
    """α = exp(−exp(x_w))
    o = (S + diag(u) k vᵀ)ᵀ r
    S' = diag(α) S + k vᵀ
    h = norm(o) ⊙ silu(x_g)           norm: RMSNorm per head, with a gain

    Peng et al., Eagle and Finch: RWKV with matrix-valued states and dynamic recurrence, COLM 2024. The paper also
    mixes each token with the one before it (token shift), which this cell does not; its normalisation is
    a LayerNorm per head. The biases of w start from −6 up to −1. Not in torch.nn.

    >>> recur.Recurrent("rwkv6", 3, 4)(torch.randn(2, 50, 3)).outputs.shape
    torch.Size([2, 50, 4])
    """

    name = "rwkv6"
    inputs = {"r": "K", "k": "K", "v": "V", "w": "K", "g": "V"}
    extras = {"u": ("heads", "K"), "norm": ("V",)}

    def init_extras(self, weights: Weights) -> None:
        super().init_extras(weights)
        if "bias_ih" in weights:
            with torch.no_grad():
                bias = self.blocks(weights["bias_ih"])[self.gates.index("w")]
                bias.copy_(torch.linspace(-6, -1, len(bias), dtype=bias.dtype, device=bias.device))

    def step(self, x: Tensors, S: Any, w: Tensors) -> tuple[Any, Any]:
        o = S.write(w.u * x.k, x.v).read(x.r)
        S = S.scale(log=-torch.exp(x.w)).write(x.k, x.v)
        return S, head_norm(o, w.norm) * silu(x.g)
