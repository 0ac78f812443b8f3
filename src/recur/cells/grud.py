"""GRU-D: the state decays with the time since the previous step."""

from __future__ import annotations

from torch import Tensor, exp, relu, sigmoid, tanh
from torch.nn.functional import linear

from recur.cells.cell import Cell, State, Tensors


class GRUD(Cell):
    """γ = exp(−ReLU(d ⊙ Δt + k))   ĥ = γ ⊙ h
    r = σ(x_r + ĥ_r)   z = σ(x_z + ĥ_z)     with ĥ_r = W_r ĥ + b_hr
    n = tanh(x_n + W_n (r ⊙ ĥ))
    h' = (1 − z) ⊙ ĥ + z ⊙ n

    Che, Purushotham, Cho, Sontag and Liu, Recurrent neural networks for multivariate time series with missing values,
    Scientific Reports 8 (2018), equations 10 to 16: the decay of the state. Δt is the input `dt` of a call, (B, T), one
    number for all variables; 1 if it is not given. The mask of observed values and the decay of missing ones towards
    their mean belong to the data: append them to x. Not in torch.nn.

    >>> net = recur.Recurrent("grud", 3, 4)
    >>> net(torch.randn(2, 5, 3), dt=torch.rand(2, 5)).outputs.shape
    torch.Size([2, 5, 4])
    """

    name = "grud"
    gates = ("r", "z", "n")
    state_gates = ("r", "z")
    inputs = {"dt": 1}
    extras = {"W_n": ("H", "H"), "d": ("H",), "k": ("H",)}
    pointwise = False
    own_products = True
    input_gate = "z"

    def _decayed(self, x: Tensors, s: Tensors, w: Tensors) -> Tensor:
        return exp(-relu(w.d * x.dt + w.k)) * s.h

    def multiplied(self, x: Tensors, s: Tensors, w: Tensors) -> Tensor:
        return self._decayed(x, s, w)

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        before = self._decayed(x, s, w)
        r = sigmoid(x.r + h.r)
        z = sigmoid(x.z + h.z)
        n = tanh(x.n + linear(r * before, w.W_n))
        return ((1 - z) * before + z * n,)
