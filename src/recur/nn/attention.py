"""Attention over a memory, and pooling of states into one vector.

    a_ts = softmax over s of score(q_t, m_s)        c_t = Σ_s a_ts m_s

    additive   score(q, m) = v · tanh(W_q q + W_k m)      Bahdanau, Cho and Bengio 2015
    dot        score(q, m) = (W_q q) · (W_k m) / √A       scaled dot product, Vaswani et al. 2017, with one head

Masked positions have weight 0. W_q and W_k project queries (width Q) and memory (width M) to width A.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from recur.errors import OptionError, ShapeError, unknown
from recur.nn.functional import padding_mask
from recur.nn.options import check_direction

ATTENTION_KINDS = ("additive", "dot")


class Attention(nn.Module):
    """Attention of queries (B, T, Q) over a memory (B, S, M): contexts (B, T, M) and weights (B, T, S).

    >>> attention = recur.nn.Attention("additive", query_size=4, memory_size=6, size=8)
    >>> memory = torch.randn(2, 7, 6)
    >>> contexts, weights = attention(torch.randn(2, 3, 4), memory)
    >>> contexts.shape, weights.sum(-1).allclose(torch.ones(2, 3))
    (torch.Size([2, 3, 6]), True)
    """

    def __init__(self, kind: str, query_size: int, memory_size: int, size: int) -> None:
        super().__init__()
        if kind not in ATTENTION_KINDS:
            raise OptionError(unknown("attention", kind, ATTENTION_KINDS))
        self.kind, self.size = kind, size
        self.query = nn.Linear(query_size, size, bias=kind == "additive")
        self.key = nn.Linear(memory_size, size, bias=False)
        self.score = nn.Linear(size, 1, bias=False) if kind == "additive" else None

    def keys(self, memory: Tensor) -> Tensor:
        """Return the keys W_k m_s, shape (B, S, A). Compute them once per memory and pass them to `forward`."""
        keys: Tensor = self.key(memory)
        return keys

    def forward(
        self, query: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return contexts (B, T, M) and attention weights (B, T, S).

        mask   (B, S), True at positions that may be attended to; every row needs at least one
        keys   result of `keys(memory)`, computed here if not given
        """
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


POOLING_KINDS = ("last", "mean", "max", "concat", "attention", "self-attention")

POOLING_PARTS = {"concat": ("last", "mean", "max")}
"""Parts of which a pooling is the concatenation, if there are several."""

PoolingState = tuple[Tensor, ...]
"""Tensors that `Pooling.step` carries from step to step."""


class Pooling(nn.Module):
    """Pooling of states (B, T, H) with lengths (B,) into vectors (B, output_size).

    pool        last, mean, max, concat (all three), attention (a learned weighted mean) or self-attention (several)
    width       H
    direction   direction of the network: of "both", the last state is the last of the forward and the first of the
                backward half

    Without lengths, all T steps of every row are used.

    >>> pool = recur.nn.Pooling("mean", 4)
    >>> pool(torch.ones(2, 5, 4), torch.tensor([5, 3])).tolist()[1]     # padding does not count
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, pool: str, width: int, *, direction: str = "forward", heads: int = 4) -> None:
        super().__init__()
        if pool not in POOLING_KINDS:
            raise OptionError(unknown("pooling", pool, POOLING_KINDS))
        self.pool, self.direction = pool, check_direction(direction)
        attends = pool in ("attention", "self-attention")
        self.heads = heads if pool == "self-attention" else 1
        self.output_size = width * (self.heads if attends else len(self.parts))
        self.key = nn.Linear(width, width) if attends else None
        self.query = nn.Linear(width, self.heads, bias=False) if attends else None

    @property
    def parts(self) -> tuple[str, ...]:
        return POOLING_PARTS.get(self.pool, (self.pool,))

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        B, T, _ = states.shape
        if lengths is None:  # and nothing is asked of numbers that a graph leaves open
            return torch.cat([self._pool(part, states, None, None) for part in self.parts], -1)
        if lengths.shape != (B,) or not bool(((lengths > 0) & (lengths <= T)).all()):
            raise ShapeError(f"Pooling: lengths must be (B={B},), each in 1 … T={T}, got {lengths.tolist()[:8]}")
        lengths = lengths.to(states.device)
        padding = padding_mask(states, lengths)
        return torch.cat([self._pool(part, states, lengths, padding) for part in self.parts], -1)

    def _pool(self, part: str, states: Tensor, lengths: Tensor | None, padding: Tensor | None) -> Tensor:
        B, T, H = states.shape
        if part == "last":
            first = states[:, 0]
            last = states[:, -1] if lengths is None else states[torch.arange(B, device=states.device), lengths - 1]
            if self.direction == "both":
                return torch.cat([last[:, : H // 2], first[:, H // 2 :]], dim=-1)
            return last if self.direction == "forward" else first
        if part == "mean":
            return _filled(states, padding, 0).sum(1) / (T if lengths is None else lengths[:, None])
        if part == "max":
            return _filled(states, padding, -torch.inf).amax(1)
        weights = _filled(self._scores(states), padding, -torch.inf).softmax(1)
        return (weights.mT @ states).flatten(1)

    def _scores(self, states: Tensor) -> Tensor:
        """Return attention scores (…, heads) of states (…, H)."""
        assert self.key is not None
        assert self.query is not None
        scores: Tensor = self.query(torch.tanh(self.key(states)))
        return scores

    def step(self, h: Tensor, carried: PoolingState | None = None) -> tuple[Tensor, PoolingState]:
        """Add one state (B, H). Return the pooled vector of all states so far, and the state for the next call.

        carried   state that the previous call returned; None at the first step
        """
        if self.direction != "forward":
            raise OptionError(f"one step at a time needs direction='forward', this pooling has {self.direction!r}")
        pooled, kept = [], list[Tensor]()
        for part in self.parts:
            takes = POOLING_STATE_SIZES[part]
            own, rest = (None, None) if carried is None else (carried[:takes], carried[takes:])
            found, new = self._step(part, h, own)
            pooled.append(found)
            kept += new
            carried = rest
        return torch.cat(pooled, -1), tuple(kept)

    def _step(self, part: str, h: Tensor, carried: PoolingState | None) -> tuple[Tensor, PoolingState]:
        if part == "last":
            return h, ()
        if part == "max":
            most = h if carried is None else torch.maximum(carried[0], h)
            return most, (most,)
        score = torch.zeros_like(h[:, :1]) if part == "mean" else self._scores(h)
        score, h = score[..., None], h[:, None]  # (B, heads, 1), (B, 1, H)
        if carried is None:
            total, weight, top = h.expand(-1, self.heads, -1), torch.ones_like(score), score
        else:
            total, weight, top = carried
            # The largest score so far is taken out of every exponent, so that none overflows.
            higher = torch.maximum(top, score)
            old, new = (top - higher).exp(), (score - higher).exp()
            total, weight, top = total * old + h * new, weight * old + new, higher
        return (total / weight).flatten(1), (total, weight, top)


def _filled(x: Tensor, padding: Tensor | None, value: float) -> Tensor:
    return x if padding is None else x.masked_fill(padding, value)


POOLING_STATE_SIZES = {"last": 0, "max": 1, "mean": 3, "attention": 3, "self-attention": 3}
"""Number of tensors that each part carries."""
