"""M²RNN: a non-linear recurrence with a matrix state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, sigmoid, tanh

from recur.cells.cell import Weights
from recur.cells.matrix import HeadedCell
from recur.cells.tensors import Tensors


class M2RNN(HeadedCell):
    """f = σ(x_f)                     one number per head
    S' = f S + (1 − f) tanh(S W + k vᵀ)
    h = S'ᵀ q

    Mishra, Tan, Stoica, Gonzalez and Dao, M²RNN: non-linear RNNs with matrix-valued states for scalable language
    modeling, 2026. W is V × V, one per head. Row i of S is an
    ordinary gated recurrence of V units that reads k_i v: not linear in S, so that steps run one after another on the
    loop. `Memories` puts any pointwise cell in the place of its row. Not in torch.nn.

    >>> net = recur.Recurrent("m2rnn:num_heads=2", 3, 8)
    >>> net(torch.randn(2, 5, 3)).state[0].S.shape                 # 2 heads of 4 × 4
    torch.Size([2, 32])
    """

    name = "m2rnn"
    inputs = {"q": "K", "k": "K", "v": "V", "f": 1}
    extras = {"W": ("heads", "V", "V")}

    def init_extras(self, weights: Weights) -> None:
        """Initialise W as orthogonal matrices, and the biases of f to 1."""
        for block in weights["W"]:
            torch.nn.init.orthogonal_(block)
        if "bias_ih" in weights:
            torch.nn.init.ones_(self.blocks(weights["bias_ih"])[self.gates.index("f")])

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> Sequence[Tensor]:
        dims = self.dims(s.h.shape[-1])
        S = s.S.unflatten(-1, (dims.heads, dims.K, dims.V))
        f: Tensor = sigmoid(x.f)[..., None]
        S = f * S + (1 - f) * tanh(S @ w.W + x.k[..., None] * x.v[..., None, :])
        return (x.q[..., None] * S).sum(-2).flatten(-2), S.flatten(-3)
