"""Many states h_1 … h_τ to one.

    last        h_τ, where reading ended: backward that is h_1, and of two directions each half has its own end
    mean        Σ_t h_t / τ
    max         the largest value of each unit
    attention   Σ_t α_t h_t,   α = softmax(v · tanh(A h_t))         (Yang et al. 2016)

All four can be carried along a sequence in constant memory: see `begin` and `step`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recur.errors import OptionError, ShapeError, unknown
from recur.layers.options import check_direction

POOLS = ("last", "mean", "max", "attention")

Carried = tuple[Tensor, ...]
"""What a pool needs of all states so far."""


class Pooling(nn.Module):
    """States (B, T, H) and lengths (B,) to (B, H)."""

    def __init__(self, pool: str, width: int, *, direction: str = "forward") -> None:
        super().__init__()
        if pool not in POOLS:
            raise OptionError(unknown("pooling", pool, POOLS))
        self.pool, self.direction = pool, check_direction(direction)
        self.key = nn.Linear(width, width) if pool == "attention" else None
        self.query = nn.Linear(width, 1, bias=False) if pool == "attention" else None

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        B, T, H = states.shape
        if lengths.shape != (B,) or not bool(((lengths > 0) & (lengths <= T)).all()):
            raise ShapeError(f"Pooling: lengths must be (B={B},), each in 1 … T={T}, got {lengths.tolist()[:8]}")
        lengths = lengths.to(states.device)
        if self.pool == "last":
            first, last = states[:, 0], states[torch.arange(B, device=states.device), lengths - 1]
            if self.direction == "both":
                return torch.cat([last[:, : H // 2], first[:, H // 2 :]], dim=-1)
            return last if self.direction == "forward" else first
        padding = (torch.arange(T, device=states.device) >= lengths[:, None])[..., None]
        if self.pool == "mean":
            return states.masked_fill(padding, 0).sum(1) / lengths[:, None]
        if self.pool == "max":
            return states.masked_fill(padding, -torch.inf).amax(1)
        weights = self._scores(states).masked_fill(padding, -torch.inf).softmax(1)
        return (weights * states).sum(1)

    def _scores(self, states: Tensor) -> Tensor:
        assert self.key is not None
        assert self.query is not None
        scores: Tensor = self.query(torch.tanh(self.key(states)))
        return scores

    def step(self, h: Tensor, carried: Carried | None = None) -> tuple[Tensor, Carried]:
        """One state more, (B, H): the pool of all so far, and what to pass with the next; None at the start."""
        if self.direction != "forward":
            raise OptionError(f"one step at a time needs direction='forward', this pooling has {self.direction!r}")
        if self.pool == "last":
            return h, ()
        if self.pool == "max":
            most = h if carried is None else torch.maximum(carried[0], h)
            return most, (most,)
        score = self._scores(h) if self.pool == "attention" else torch.zeros_like(h[:, :1])
        if carried is None:
            return h, (h, torch.ones_like(score), score)
        total, weight, top = carried
        # The largest score so far is taken out of every exponent, so that none overflows.
        higher = torch.maximum(top, score)
        old, new = (top - higher).exp(), (score - higher).exp()
        total, weight = total * old + h * new, weight * old + new
        return total / weight, (total, weight, higher)
