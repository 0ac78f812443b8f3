"""Recurrence in two dimensions: a composition over grids, whose points see the neighbours that were read before them.

    h_ij = compose(x_ij, h_{i−1,j}, h_{i,j−1})          reading from the top left corner

The points of an anti-diagonal, i + j = d, see only those of the one before: a diagonal is one product, and a grid of
R × C is R + C − 1 steps instead of R · C. What two directions are to a sequence, four corners are to a grid: with them
the output at every point has seen all of the grid, in four parts that meet there (Graves, Fernández and Schmidhuber
2007). So yes, the bidirectional network does extend to two dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.types import Device

from recur.cells import State
from recur.errors import OptionError, ShapeError, unknown
from recur.layers.compose import COMPOSITIONS, Composition, RecursiveNet, TreeLSTM
from recur.layers.diagonals import LSTM, DiagonalScan, Net, Pointwise

CORNERS: dict[int, list[tuple[int, ...]]] = {1: [()], 2: [(), (1, 2)], 4: [(), (2,), (1,), (1, 2)]}
"""Which axes of (·, R, C, ·) are turned around for each corner; two are opposite ones."""

POINTWISE: dict[type[Composition], Pointwise] = {RecursiveNet: Net, TreeLSTM: LSTM}
"""The compositions that run along diagonals, and what runs them."""


class Grid(nn.Module):
    """A composition over grids: (B, R, C, D) in, (B, R, C, corners · H) out.

    compose   net, the two-dimensional RNN, or lstm, the two-dimensional LSTM; see recur.layers.compose
    corners   1, 2 (top left and bottom right) or 4: where reading starts, each with weights of its own
    """

    def __init__(
        self,
        compose: str,
        input_size: int,
        hidden_size: int,
        *,
        corners: int = 1,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if corners not in CORNERS:
            raise OptionError(f"a grid is read from 1, 2 or 4 corners, got {corners!r}")
        known = [name for name, kind in COMPOSITIONS.items() if kind in POINTWISE]
        if compose not in known:
            raise OptionError(unknown("composition of a grid", compose, known))
        self.turns = CORNERS[corners]
        kind = COMPOSITIONS[compose]
        self._step = POINTWISE[kind]
        made = [kind(input_size, hidden_size, device=device, dtype=dtype) for _ in self.turns]
        self.composes = nn.ModuleList(made)
        self.input_size, self.output_size = input_size, corners * hidden_size

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        B, R, C, _ = x.shape
        one = torch.cat([x, x.new_ones(B, R, C, 1)], dim=-1)  # what the bias is multiplied with
        points = one.permute(3, 1, 2, 0).contiguous()
        turned = torch.stack([points.flip(turn) for turn in self.turns]).flatten(2, 3)
        W, U, b = (torch.stack([getattr(c, name) for c in self.composes]) for name in ("weight_h", "weight_x", "bias"))
        h: Tensor = DiagonalScan.apply(turned, torch.cat([W, U, b[:, :, None]], dim=2), R, C, self._step)
        corners = zip(h.unflatten(2, (R, C)), self.turns, strict=True)
        return torch.cat([part.flip(turn).permute(3, 1, 2, 0) for part, turn in corners], dim=-1)

    def plain(self, x: Tensor) -> Tensor:
        """The definition: corner by corner, row by row, point by point."""
        self._check(x)
        composes = [compose for compose in self.composes if isinstance(compose, Composition)]
        corners = zip(composes, self.turns, strict=True)
        return torch.cat([_point_by_point(compose, x.flip(turn)).flip(turn) for compose, turn in corners], dim=-1)

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor) or x.dim() != 4 or x.shape[-1] != self.input_size or 0 in x.shape:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            hint = "; add an axis with x[..., None]" if isinstance(x, Tensor) and x.dim() == 3 else ""
            raise ShapeError(f"Grid: x must be (B, R, C, D={self.input_size}), got {got}{hint}")


def _point_by_point(compose: Composition, x: Tensor) -> Tensor:
    B, R, C, _ = x.shape
    H = compose.hidden_size
    zero: State = tuple(x.new_zeros(B, H) for _ in compose.states)
    owner = torch.arange(B, device=x.device).repeat_interleave(2)
    above: list[State] = [zero] * C
    rows = []
    for i in range(R):
        left = zero
        for j in range(C):
            pairs = tuple(torch.stack(both, dim=1).view(-1, H) for both in zip(above[j], left, strict=True))
            left = above[j] = compose(compose.share(x[:, i, j]), pairs, owner, B)
        rows.append(torch.stack([states[0] for states in above], dim=1))
    return torch.stack(rows, dim=1)
