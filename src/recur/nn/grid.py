"""Recursive networks over two-dimensional grids, computed along anti-diagonals.

The points of an anti-diagonal depend only on the previous anti-diagonal. So one anti-diagonal of all grids and all Q
corners is one product. The neighbours are two slices of the previous anti-diagonal, padded with one zero point at each
end for positions outside the grid. The PyTorch implementation runs on any device and is differentiable any number of
times.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.types import Device

from recur.cells import State
from recur.compiler import programs
from recur.errors import BackendError, OptionError, ShapeError, unknown
from recur.nn.recursive import COMPOSITIONS, Composition, composition_cell
from recur.ops.call import check_like
from recur.ops.cpu import library


class Diagonal(NamedTuple):
    points: list[int]
    """Indices of its points among all R · C, row by row: each next point is one row down and one column left."""
    above: int
    """Offset of the upper neighbours in the padded previous diagonal; the left neighbours start one later."""


def diagonals(R: int, C: int) -> list[Diagonal]:
    found = []
    top_before = 0
    for d in range(R + C - 1):
        top, bottom = max(0, d - C + 1), min(R - 1, d)
        found.append(Diagonal([i * C + d - i for i in range(top, bottom + 1)], top - top_before))
        top_before = top
    return found


def scan_diagonals(compose: Composition, x: Tensor, M: Tensor, turns: list[tuple[int, ...]]) -> Tensor:
    """Return h (B, R, C, Q·H) for a pointwise composition.

    x       (B, R, C, D)
    M       [W_1 W_2 U b], (Q, G·H, 2H + D + 1)
    turns   axes of x to flip for each corner
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


CORNERS: dict[int, list[tuple[int, ...]]] = {1: [()], 2: [(), (1, 2)], 4: [(), (2,), (1,), (1, 2)]}
"""Axes of (B, R, C, D) to flip for each corner; two corners are opposite ones."""

GRID_BACKENDS = ("native", "torch", "loop")
"""native: all anti-diagonals in one C++ call; torch: one anti-diagonal at a time; loop: one point at a time."""


class Grid(nn.Module):
    """Recursive network over grids: (B, R, C, D) to (B, R, C, corners · H).

    compose   net (two-dimensional RNN), lstm (two-dimensional LSTM), or a custom Composition with `equations`; see
              recur.nn.recursive
    corners   1, 2 (top left and bottom right) or 4: corners from which the grid is read, each with its own weights
    backend   native, torch, loop, or auto (the first that can run). A backend requested by name runs or raises.

    >>> recur.nn.Grid("lstm", 1, 4, corners=4)(torch.randn(2, 8, 8, 1)).shape
    torch.Size([2, 8, 8, 16])
    """

    def __init__(
        self,
        compose: str | type[Composition],
        input_size: int,
        hidden_size: int,
        *,
        corners: int = 1,
        backend: str = "auto",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if corners not in CORNERS:
            raise OptionError(f"a grid is read from 1, 2 or 4 corners, got {corners!r}")
        if backend not in ("auto", *GRID_BACKENDS):
            raise BackendError(unknown("backend", backend, ["auto", *GRID_BACKENDS]))
        self.turns, self.backend = CORNERS[corners], backend
        kind = _pointwise(compose)
        made = [kind(input_size, hidden_size, device=device, dtype=dtype) for _ in self.turns]
        self.composes = nn.ModuleList(made)
        self.input_size, self.output_size = input_size, corners * hidden_size
        self._cell = composition_cell(kind)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        kind = x.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            # Whole, as torch.nn casts its layers: states keep their dtype from point to point, and it is the weights'.
            with torch.autocast(kind, enabled=False):
                return self.forward(x.to(self._like.dtype)).to(torch.get_autocast_dtype(kind))
        check_like(self._cell, "weight_x", self._like, x)
        backend = self.choose(x)
        if backend == "loop":
            return self.plain(x)
        W, U, b = (torch.stack([getattr(c, name) for c in self.composes]) for name in ("weight_h", "weight_x", "bias"))
        M = torch.cat([W, U, b[:, :, None]], dim=2)
        if backend == "torch":
            return self._diagonals(x, M)
        from recur.ops.cpu import grid

        turns = [(1 in turn) + 2 * (2 in turn) for turn in self.turns]
        return grid.grid_op(self._diagonals, x, M, turns, programs.text_of(self._cell, False))

    def choose(self, x: Tensor) -> str:
        """Return the backend that runs for inputs like x."""
        reason = library.unsupported_reason(self._cell, x, x.dtype, False)
        if self.backend == "native" and reason is not None:
            raise BackendError(f"backend 'native' cannot run this: {reason}; take backend='auto' or 'torch'")
        if self.backend == "auto":
            return "native" if reason is None else "torch"
        return self.backend

    @property
    def _like(self) -> Tensor:
        return next(self.parameters())

    def _diagonals(self, x: Tensor, M: Tensor) -> Tensor:
        compose = self.composes[0]
        assert isinstance(compose, Composition)
        return scan_diagonals(compose, x, M, self.turns)

    def plain(self, x: Tensor) -> Tensor:
        """Compute the definition: corner by corner, row by row, point by point."""
        self._check(x)
        composes = [compose for compose in self.composes if isinstance(compose, Composition)]
        corners = zip(composes, self.turns, strict=True)
        return torch.cat([_point_by_point(compose, x.flip(turn)).flip(turn) for compose, turn in corners], dim=-1)

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor) or x.dim() != 4 or x.shape[-1] != self.input_size or 0 in x.shape:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            hint = "; add an axis with x[..., None]" if isinstance(x, Tensor) and x.dim() == 3 else ""
            raise ShapeError(f"Grid: x must be (B, R, C, D={self.input_size}), got {got}{hint}")


def _pointwise(compose: str | type[Composition]) -> type[Composition]:
    known = {name: kind for name, kind in COMPOSITIONS.items() if kind.equations is not Composition.equations}
    if isinstance(compose, str):
        if compose not in known:
            raise OptionError(unknown("composition of a grid", compose, list(known)))
        return known[compose]
    if not isinstance(compose, type) or not issubclass(compose, Composition):
        raise OptionError(f"a grid is made of {', '.join(known)} or of a class of Composition, got {compose!r}")
    if compose.arity != 2 or compose.equations is Composition.equations:
        raise OptionError(f"{compose.__name__} cannot be read over a grid: it needs arity = 2 and `equations`")
    return compose


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
