"""Matrix LSTM (mLSTM) of xLSTM: exponential gates, a matrix memory and a normaliser."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import sigmoid
from torch.nn.functional import logsigmoid

from recur.cells.cell import Weights
from recur.cells.matrix import MatrixCell, head_norm
from recur.cells.tensors import Tensors
from recur.errors import OptionError, unknown

GATES = ("exp", "sigmoid")


@dataclass
class MLSTM(MatrixCell):
    """f = σ(x_f)   i = exp(x_i)      one number per head
    C' = f C + i (k / √K) vᵀ
    n' = f n + i k / √K
    h = σ(x_o) ⊙ norm(C'ᵀ q / max(|n'ᵀ q|, 1))

    Beck et al., xLSTM: extended long short-term memory, NeurIPS 2024; norm: RMSNorm per head, with a gain. C and n are
    stored divided by e^m with m' = max(log f + m, log i), as in the paper; n is one more column of C. With
    `gate="sigmoid"`, i = σ(x_i) and there is neither n nor m (Beck et al., Tiled flash linear attention, 2025). The
    biases of f start from 3 up to 6, those of i at −10. Not in torch.nn.

    >>> recur.make_cell("mlstm").states, recur.make_cell("mlstm:gate=sigmoid").states
    (('h', 'S', 'm'), ('h', 'S'))
    """

    gate: str = "exp"
    """The input gate: exp or sigmoid."""

    name = "mlstm"
    inputs = {"q": "K", "k": "K", "v": "V", "i": 1, "f": 1, "o": "V"}
    extras = {"norm": ("V",)}
    columns = 1
    stabilised = True

    def __post_init__(self) -> None:
        if self.gate not in GATES:
            raise OptionError(f"MLSTM: {unknown('input gate', self.gate, GATES)}")
        super().__post_init__()
        if self.gate == "sigmoid":
            self.columns, self.stabilised = 0, False  # type: ignore[misc]
            self.states, self.initial = ("h", "S"), {"h": 0.0}

    def init_extras(self, weights: Weights) -> None:
        super().init_extras(weights)
        if "bias_ih" in weights:
            blocks = dict(zip(self.gates, self.blocks(weights["bias_ih"]), strict=True))
            with torch.no_grad():
                blocks["f"].copy_(torch.linspace(3, 6, len(blocks["f"])))
                blocks["i"].fill_(-10 if self.gate == "exp" else 0)

    def step(self, x: Tensors, S: Any, w: Tensors) -> tuple[Any, Any]:
        K, V = x.k.shape[-1], x.v.shape[-1]
        S = S.scale(log=logsigmoid(x.f))
        if self.gate == "sigmoid":
            S = S.write(sigmoid(x.i) * x.k / math.sqrt(K), x.v)
            return S, sigmoid(x.o) * head_norm(S.read(x.q), w.norm)
        S = S.write(x.k / math.sqrt(K), torch.cat([x.v, torch.ones_like(x.v[..., :1])], dim=-1), log=x.i)
        both = S.read(x.q)
        o = both[..., :V] / torch.maximum(both[..., V:].abs(), torch.exp(-S.m))
        return S, sigmoid(x.o) * head_norm(o, w.norm)
