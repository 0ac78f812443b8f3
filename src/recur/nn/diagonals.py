"""Grids along their anti-diagonals, in PyTorch operations: on any device, differentiable as often as one likes.

The points of an anti-diagonal see only those of the one before, so a diagonal of all grids and all Q corners is one
product. Its neighbours are two slices of the diagonal before, which has a point of zeros at either end for what lies
outside the grid.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from recur.nn.compose import Composition


class Diagonal(NamedTuple):
    points: list[int]
    """Of all R · C, row by row: from one to the next it is a row down and a column back."""
    above: int
    """Where the neighbours above begin in the padded diagonal before; those to the left begin one later."""


def diagonals(R: int, C: int) -> list[Diagonal]:
    found = []
    top_before = 0
    for d in range(R + C - 1):
        top, bottom = max(0, d - C + 1), min(R - 1, d)
        found.append(Diagonal([i * C + d - i for i in range(top, bottom + 1)], top - top_before))
        top_before = top
    return found


def along_diagonals(compose: Composition, x: Tensor, M: Tensor, turns: list[tuple[int, ...]]) -> Tensor:
    """h (B, R, C, Q·H) of x (B, R, C, D) and M = [W_1 W_2 U b] (Q, G·H, 2H + D + 1), for a pointwise composition.

    turns   for each corner, which axes of x are turned around
    """
    (B, R, C, D), H, Q = x.shape, compose.hidden_size, len(turns)
    W, U, b = M.split([2 * H, D, 1], dim=2)
    path = diagonals(R, C)
    order = torch.tensor([point for at in path for point in at.points], device=x.device)
    turned = torch.stack([x.flip(turn).flatten(1, 2).transpose(0, 1)[order] for turn in turns])  # (Q, R·C, B, D)
    share = torch.baddbmm(b.transpose(1, 2), turned.flatten(1, 2), U.transpose(1, 2)).reshape(Q, R * C, B, -1)
    before = tuple(x.new_zeros(Q, 2, B, H) for _ in compose.states)
    outputs = []
    for at, own in zip(path, share.split([len(at.points) for at in path], dim=1), strict=True):
        n = len(at.points)
        pairs = [torch.stack([part.narrow(1, at.above, n), part.narrow(1, at.above + 1, n)], 3) for part in before]
        a = torch.baddbmm(own.flatten(1, 2), pairs[0].reshape(Q, n * B, 2 * H), W.transpose(1, 2))
        states = compose.step(a.flatten(0, 1), tuple(part.reshape(-1, 2, H) for part in pairs))
        now = tuple(part.reshape(Q, n, B, H) for part in states)
        outputs.append(now[0])
        before = tuple(pad(part, (0, 0, 0, 0, 1, 1)) for part in now)
    h = torch.cat(outputs, dim=1)[:, order.argsort()].reshape(Q, R, C, B, H)
    corners = zip(h, turns, strict=True)
    return torch.cat([part.permute(2, 0, 1, 3).flip(turn) for part, turn in corners], dim=-1)
