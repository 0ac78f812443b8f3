"""Tokens as vectors: one-hot, or learned, with the dropouts of their place."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, one_hot

from recur.data.series.dates import compress_time
from recur.data.text import UNK
from recur.models.options import parse_embedding
from recur.models.stack import State
from recur.nn import sequence_dropout


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
        self.weight = nn.Parameter(draw_embedding(K, width, init)) if width else None
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
        return sequence_dropout(x, self.drop, training=self.training, variational=self.variational)

    def vectors(self, ids: Tensor) -> Tensor:
        """Of ids of any shape, without dropout: what a step of use reads."""
        if self.weight is None:
            like: Tensor = self._like  # type: ignore[assignment]
            return one_hot(ids, self.K).to(like.dtype)
        return embedding(ids, self.weight)


def embedding_scale(K: int) -> float:
    """The deviation of an embedding of K tokens: 4/√K, at most 1.

    A token out of a few is met all the time: where it starts hardly matters once it has been learned, and vectors that
    differ from the start are read from the first step on. One out of thousands is met now and then: what its vector
    starts with stays in it as noise.
    """
    return min(1.0, 4 / math.sqrt(K))


def draw_embedding(K: int, width: int, init: str) -> Tensor:
    """A matrix (K, width): uniform:a is uniform in ± a, normal:σ normal, scaled normal with `embedding_scale`; zero for
    <unk>."""
    kind, scale = parse_embedding(init)
    if kind == "scaled":
        kind, scale = "normal", embedding_scale(K)
    weight = torch.empty(K, width)
    weight = nn.init.uniform_(weight, -scale, scale) if kind == "uniform" else nn.init.normal_(weight, std=scale)
    weight[UNK] = 0  # where nothing is unknown in training, no gradient ever reaches it, and a random row is noise
    return weight


class SignalInput(nn.Module):
    """Steps (B, T, D) to vectors (B, T, width or D). Mean and deviation are kept with the weights."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, D: int, width: int = 0, *, noise: float = 0.0, drop: float = 0.0, variational: bool = False
    ) -> None:
        super().__init__()
        self.D, self.noise, self.drop, self.variational = D, noise, drop, variational
        self.register_buffer("mean", torch.zeros(D))
        self.register_buffer("deviation", torch.ones(D))
        self.project = nn.Linear(D, width) if width else None

    @torch.no_grad()
    def fit(self, mean: Tensor, deviation: Tensor) -> None:
        """Standardise by these (D,) from now on."""
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    @property
    def width(self) -> int:
        return self.D if self.project is None else self.project.out_features

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.deviation
        if self.training and self.noise:
            x = x + self.noise * torch.randn_like(x)
        return sequence_dropout(self._projected(x), self.drop, training=self.training, variational=self.variational)

    def vectors(self, x: Tensor) -> Tensor:
        """Of steps (…, D), without noise and dropout: what a step of use reads."""
        return self._projected((x - self.mean) / self.deviation)

    def _projected(self, x: Tensor) -> Tensor:
        projected: Tensor = x if self.project is None else self.project(x)
        return projected


def scale_time(t: Tensor, scale: float) -> Tensor:
    """Return the time input for step numbers t ≥ 0 of any shape; see `recur.data.series.dates.compress_time`."""
    return compress_time(t.to(torch.float64) / scale, torch.log).to(torch.get_default_dtype())


def time_positions(start: Tensor, T: int, reset: Tensor | None = None) -> Tensor:
    """(B, T): t of rows whose first step has the t of `start` (B,); where `reset` (B, T) is true it is 0 again."""
    steps = torch.arange(T, device=start.device)
    t = start[:, None] + steps
    if reset is None:
        return t
    last = torch.where(reset, steps, -1).cummax(1).values
    return torch.where(last >= 0, steps - last, t)


def step_indices(x: Tensor) -> Tensor:
    """(B, T): t of sequences (B, T, …) that are read from their beginning."""
    return torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)


def append_time(x: Tensor, t: Tensor, scale: float) -> Tensor:
    """Inputs (…, D) with τ of their steps t (…) behind them, (…, D + 1)."""
    return torch.cat([x, scale_time(t, scale)[..., None].to(x)], dim=-1)


def split_state(state: State | None, rows: Tensor) -> tuple[State | None, Tensor]:
    """A state that carries its t, cut in two: the network's own, and t (B,). Without one, 0 for each of the rows."""
    if state is None:
        return None, torch.zeros(len(rows), dtype=torch.long, device=rows.device)
    *layers, (t,) = state
    return tuple(layers), t
