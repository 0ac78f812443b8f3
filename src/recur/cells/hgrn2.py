"""Hierarchically gated recurrent network 2 (HGRN2): the forget gate is also the key."""

from __future__ import annotations

from typing import Any

from torch import sigmoid
from torch.nn.functional import logsigmoid, silu

from recur.cells.matrix import MatrixCell, head_norm
from recur.cells.tensors import Tensors


class HGRN2(MatrixCell):
    """f = σ(x_f)
    S' = diag(f) S + (1 − f) x_iᵀ
    h = norm(S'ᵀ silu(x_q))           norm: RMSNorm per head

    Qin et al., HGRN2: gated linear RNNs with state expansion, COLM 2024. Without the lower bounds of f that the paper
    learns per layer. Not in torch.nn.

    >>> recur.Recurrent("hgrn2", 3, 4)(torch.randn(2, 50, 3)).outputs.shape
    torch.Size([2, 50, 4])
    """

    name = "hgrn2"
    inputs = {"q": "K", "f": "K", "i": "V"}

    def step(self, x: Tensors, S: Any) -> tuple[Any, Any]:
        S = S.scale(log=logsigmoid(x.f)).write(sigmoid(-x.f), x.i)
        return S, head_norm(S.read(silu(x.q)))
