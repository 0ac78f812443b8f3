"""DeltaNet: a write replaces what its key held before."""

from __future__ import annotations

from typing import Any

from torch import sigmoid
from torch.nn.functional import silu

from recur.cells.matrix import MatrixCell, head_norm, unit
from recur.cells.tensors import Tensors


class DeltaNet(MatrixCell):
    """q = unit(silu(x_q)) / √K   k = unit(silu(x_k))   β = σ(x_b)
    S' = S + k (β (v − Sᵀ k))ᵀ
    h = norm(S'ᵀ q)                   norm: RMSNorm per head; unit: divided by its length

    Schlag, Irie and Schmidhuber, Linear transformers are secretly fast weight programmers, ICML 2021; Yang, Wang,
    Zhang, Shen and Kim, Parallelizing linear transformers with the delta rule over sequence length, NeurIPS 2024.
    Not in torch.nn.

    >>> recur.Recurrent("deltanet", 3, 4)(torch.randn(2, 50, 3)).state[0].S.shape
    torch.Size([2, 16])
    """

    name = "deltanet"
    inputs = {"q": "K", "k": "K", "v": "V", "b": 1}

    def step(self, x: Tensors, S: Any) -> tuple[Any, Any]:
        k = unit(silu(x.k))
        S = S.write(k, sigmoid(x.b) * (x.v - S.read(k)))
        return S, head_norm(S.read(unit(silu(x.q)) * x.q.shape[-1] ** -0.5))
