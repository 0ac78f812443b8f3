"""Attention: what of a memory each query needs, as a weighted mean of it.

    a_ts = softmax over s of score(q_t, m_s)        c_t = Σ_s a_ts m_s

    additive   score(q, m) = v · tanh(W_q q + W_k m)      Bahdanau, Cho and Bengio 2015
    dot        score(q, m) = (W_q q) · (W_k m) / √A       scaled dot product, Vaswani et al. 2017, with one head

Places that a mask excludes have weight 0. W_q and W_k take queries (of width Q) and memory (of width M) to width A.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from recur.errors import OptionError, ShapeError, unknown

KINDS = ("additive", "dot")


class Attention(nn.Module):
    """Queries (B, T, Q) over a memory (B, S, M) → contexts (B, T, M) and weights (B, T, S).

    >>> attention = recur.nn.Attention("additive", query_size=4, memory_size=6, size=8)
    >>> memory = torch.randn(2, 7, 6)
    >>> contexts, weights = attention(torch.randn(2, 3, 4), memory)
    >>> contexts.shape, weights.sum(-1).allclose(torch.ones(2, 3))
    (torch.Size([2, 3, 6]), True)
    """

    def __init__(self, kind: str, query_size: int, memory_size: int, size: int) -> None:
        super().__init__()
        if kind not in KINDS:
            raise OptionError(unknown("attention", kind, KINDS))
        self.kind, self.size = kind, size
        self.query = nn.Linear(query_size, size, bias=kind == "additive")
        self.key = nn.Linear(memory_size, size, bias=False)
        self.score = nn.Linear(size, 1, bias=False) if kind == "additive" else None

    def keys(self, memory: Tensor) -> Tensor:
        """W_k m_s, (B, S, A): once for a memory, however many queries there are."""
        keys: Tensor = self.key(memory)
        return keys

    def forward(
        self, query: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`mask` (B, S) is true where there is something to attend to; every row needs one such place."""
        if query.dim() != 3 or memory.dim() != 3 or query.shape[0] != memory.shape[0]:
            shapes = f"{tuple(query.shape)} and {tuple(memory.shape)}"
            raise ShapeError(f"Attention: query must be (B, T, Q) and memory (B, S, M), got {shapes}")
        keys = self.keys(memory) if keys is None else keys
        if self.score is None:
            scores = self.query(query) @ keys.transpose(1, 2) / math.sqrt(self.size)
        else:
            # (B, T, S, A) is by far the largest tensor here: one of it is enough.
            scores = self.score((self.query(query)[:, :, None] + keys[:, None]).tanh_()).squeeze(-1)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        weights = scores.softmax(-1)
        return weights @ memory, weights
