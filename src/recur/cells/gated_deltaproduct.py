"""Gated DeltaProduct: several delta rules per step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import sigmoid
from torch.nn.functional import silu, softplus

from recur.cells.cell import Weights
from recur.cells.mamba2 import init_decay
from recur.cells.matrix import MatrixCell, head_norm, unit
from recur.cells.tensors import Tensors
from recur.errors import OptionError


@dataclass
class GatedDeltaProduct(MatrixCell):
    """q = unit(silu(x_q)) / √K   k_j = unit(silu(x_kj))   β_j = 2 σ(x_bj)
    a = exp(−exp(A_log) softplus(x_a + dt_bias))
    S_0 = a S
    S_j = S_{j−1} + k_j (β_j (v_j − S_{j−1}ᵀ k_j))ᵀ      j = 1 … n
    h = norm(S_nᵀ q) ⊙ silu(x_g)      norm: RMSNorm per head, with a gain; unit: divided by its length

    Siems et al., DeltaProduct: improving state-tracking in linear RNNs via Householder products, NeurIPS 2025. β up to
    2 allows reflections, eigenvalues down to −1. Not in torch.nn.

    >>> recur.make_cell("gated_deltaproduct:products=3").gates
    ('q', 'k1', 'v1', 'b1', 'k2', 'v2', 'b2', 'k3', 'v3', 'b3', 'a', 'g')
    """

    products: int = 2
    """The number n of delta rules per step."""

    name = "gated_deltaproduct"
    extras = {"A_log": ("heads", 1), "dt_bias": ("heads", 1), "norm": ("V",)}

    def __post_init__(self) -> None:
        if not isinstance(self.products, int) or isinstance(self.products, bool) or self.products < 1:
            raise OptionError(f"GatedDeltaProduct: products must be a whole number ≥ 1, got {self.products!r}")
        super().__post_init__()

    @property
    def inputs(self) -> Mapping[str, str | int]:  # type: ignore[override]
        inner = {
            f"{name}{j + 1}": size for j in range(self.products) for name, size in (("k", "K"), ("v", "V"), ("b", 1))
        }
        return {"q": "K", **inner, "a": 1, "g": "V"}

    def init_extras(self, weights: Weights) -> None:
        init_decay(weights)
        torch.nn.init.ones_(weights["norm"])

    def step(self, x: Tensors, S: Any, w: Tensors) -> tuple[Any, Any]:
        S = S.scale(log=-torch.exp(w.A_log) * softplus(x.a + w.dt_bias))
        for j in range(1, self.products + 1):
            k = unit(silu(getattr(x, f"k{j}")))
            S = S.write(k, 2 * sigmoid(getattr(x, f"b{j}")) * (getattr(x, f"v{j}") - S.read(k)))
        o = S.read(unit(silu(x.q)) * x.q.shape[-1] ** -0.5)
        return S, head_norm(o, w.norm) * silu(x.g)
