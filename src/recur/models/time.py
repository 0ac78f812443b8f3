"""The time t as one more input: x_t becomes [x_t; τ(t)], t being how many steps stood before.

    τ(t) = 2 u − 1        u = t / scale         up to scale, the length that was learned from: τ rises from −1 to 1
                          u = 1 + ln(t / scale) beyond it: τ goes on rising, ever more slowly, and its slope has no jump

Weights shared over time assume that a step has the same distribution at every t, given its past. Where that does not
hold, t tells the steps apart (Deep Learning, section 10.2.3). A network that goes on from a state carries its t with
it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recur.models.stack import State


def scaled(t: Tensor, scale: float) -> Tensor:
    """τ(t) of steps t ≥ 0, of any shape."""
    u = t.to(torch.float64) / scale
    return (2 * torch.where(u <= 1, u, 1 + u.clamp_min(1).log()) - 1).to(torch.get_default_dtype())


def positions(start: Tensor, T: int, reset: Tensor | None = None) -> Tensor:
    """(B, T): t of rows whose first step has the t of `start` (B,); where `reset` (B, T) is true it is 0 again."""
    steps = torch.arange(T, device=start.device)
    t = start[:, None] + steps
    if reset is None:
        return t
    last = torch.where(reset, steps, -1).cummax(1).values
    return torch.where(last >= 0, steps - last, t)


def whole(x: Tensor) -> Tensor:
    """(B, T): t of sequences (B, T, …) that are read from their beginning."""
    return torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)


def beside(x: Tensor, t: Tensor, scale: float) -> Tensor:
    """Inputs (…, D) with τ of their steps t (…) behind them, (…, D + 1)."""
    return torch.cat([x, scaled(t, scale)[..., None].to(x)], dim=-1)


def split_state(state: State | None, rows: Tensor) -> tuple[State | None, Tensor]:
    """A state that carries its t, cut in two: the network's own, and t (B,). Without one, 0 for each of the rows."""
    if state is None:
        return None, torch.zeros(len(rows), dtype=torch.long, device=rows.device)
    *layers, (t,) = state
    return tuple(layers), t
