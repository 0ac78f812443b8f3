"""Tokens as vectors: one-hot, or learned, with the dropouts of their place."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, one_hot

from recur.data.text import UNK
from recur.models.forms import parse_embedding
from recur.nn import drop_steps


class TokenEmbedding(nn.Module):
    """Ids (B, T) of a vocabulary of K to vectors (B, T, width or K).

    `drop_tokens` drops whole tokens, everywhere in a batch (Gal and Ghahramani 2016); `drop` drops entries, one mask a
    sequence if `variational`.
    """

    def __init__(
        self,
        K: int,
        width: int,
        init: str = "scaled",
        *,
        drop: float = 0.0,
        drop_tokens: float = 0.0,
        variational: bool = False,
    ) -> None:
        super().__init__()
        self.K, self.drop, self.drop_tokens, self.variational = K, drop, drop_tokens, variational
        self.weight = nn.Parameter(drawn(K, width, init)) if width else None
        self.register_buffer("_like", torch.empty(0), persistent=False)  # dtype and device of one-hot vectors

    @property
    def width(self) -> int:
        return self.K if self.weight is None else self.weight.shape[1]

    def forward(self, ids: Tensor) -> Tensor:
        if self.weight is not None and self.training and self.drop_tokens:
            kept = dropout(self.weight.new_ones(self.K, 1), self.drop_tokens)
            x = embedding(ids, self.weight * kept)
        else:
            x = self.vectors(ids)
        return drop_steps(x, self.drop, training=self.training, variational=self.variational)

    def vectors(self, ids: Tensor) -> Tensor:
        """Of ids of any shape, without dropout: what a step of use reads."""
        if self.weight is None:
            like: Tensor = self._like  # type: ignore[assignment]
            return one_hot(ids, self.K).to(like.dtype)
        return embedding(ids, self.weight)


def scale_for(K: int) -> float:
    """The deviation of an embedding of K tokens: 4/√K, at most 1.

    A token out of a few is met all the time: where it starts hardly matters once it has been learned, and vectors that
    differ from the start are read from the first step on. One out of thousands is met now and then: what its vector
    starts with stays in it as noise.
    """
    return min(1.0, 4 / math.sqrt(K))


def drawn(K: int, width: int, init: str) -> Tensor:
    """A matrix (K, width): uniform:a is uniform in ± a, normal:σ normal, scaled normal with `scale_for`; zero for
    <unk>."""
    kind, scale = parse_embedding(init)
    if kind == "scaled":
        kind, scale = "normal", scale_for(K)
    weight = torch.empty(K, width)
    weight = nn.init.uniform_(weight, -scale, scale) if kind == "uniform" else nn.init.normal_(weight, std=scale)
    weight[UNK] = 0  # where nothing is unknown in training, no gradient ever reaches it, and a random row is noise
    return weight
