"""Memory that a pass takes for itself: one tensor, cut at offsets that are known beforehand."""

from __future__ import annotations

import torch

from recur.ops.cuda import around
from recur.ops.cuda.arguments import LAID_OUT, Template
from recur.ops.cuda.blas import Product, Side
from recur.ops.cuda.driver import Prepared
from recur.ops.cuda.launches import Kernel
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.way import GRID, Problem, Way

ALIGNMENT = 256

Chosen = tuple[Problem, Way, Prepared]
"""A way that carries all steps in one launch: the problem, how, and its kernel."""


class Places:
    """Which of a call's addresses is whose: names in the order in which they come."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def add(self, *names: str) -> None:
        for name in names:
            self._of[name] = len(self._of)

    def __getitem__(self, name: str) -> int:
        return self._of[name]

    def get(self, name: str) -> int:
        """-1, where null stands, if there is none."""
        return self._of.get(name, -1)

    def some(self, prefix: str, count: int) -> list[int]:
        return [self.get(f"{prefix}{k}") for k in range(count)]

    def __len__(self) -> int:
        return len(self._of)


class Scratch:
    """What comes before the steps: W as their kernel reads it, where that is not how it is given, and zeros.

    NAMES: whose addresses it gives to a call. `laid` is W, exchange and arrived are as in kernels/arguments.cu, tickets
    and partial as in add_up.cu, workspace is for products; all that has to be zero lies together, from `zeros` on.
    """

    NAMES = ("laid", "exchange", "arrived", "tickets", "partial", "workspace", "zeros")

    def __init__(
        self, lay: Layout, index: int, chosen: Chosen | None, places: Places, workspace: int, splits: int = 1
    ) -> None:
        """`places`: of a call's addresses, its own among them. `workspace`: bytes."""
        self._lay, self._index = lay, index
        a, size = lay.assembly, lay.of.dtype.itemsize
        self._width, self.lays_out, exchange, flags = lay.H, False, 0, 0
        transposed = chosen is not None and chosen[0].backward
        if chosen is not None:
            p, way, _ = chosen
            self._width = way.width(p)
            self.lays_out = transposed or self._width != lay.H or a.heads > 1
            if way.exchange == GRID:
                teams = -(-p.S // way.rows)
                exchange, flags = teams * 2 * way.v_bytes(p), teams * 128
        tickets, partial = 0, 0
        if splits > 1:
            columns = (a.gates + a.own + a.extras) * lay.H
            tickets, partial = 4 * around.blocks_of(lay), splits * columns * lay.real.itemsize
        self._cut = exchange, flags, tickets, partial, workspace
        self._laid = a.products * lay.H * self._width * size
        self.bytes, self._offsets, self._zeros = self._sizes(self.lays_out)
        zeros = {"zeros": places["zeros"]}
        self._zeroing, self._laying = (
            Template(
                a, LAID_OUT, where, H=lay.H, inner=lay.H // a.heads, width=self._width, transposed=int(transposed),
                words=self._zeros // 16,
            )
            for where in (zeros, {"W": places.get("weight_hh"), "laid": places["laid"], **zeros})
        )  # fmt: skip

    def _sizes(self, lays_out: bool) -> tuple[int, list[int], int]:
        """All of it, where each part begins, and how many bytes have to be zero."""
        offsets, at = [], 0
        for part in (self._laid if lays_out else 0, *self._cut):
            offsets.append(at)
            at += -(-part // ALIGNMENT) * ALIGNMENT
        return at, offsets, offsets[4] - offsets[1]

    def take(self, like: torch.Tensor, W: int) -> tuple[torch.Tensor | None, list[int]]:
        """Memory, and the addresses of its parts."""
        lays_out, size, offsets = self.lays_out, self.bytes, self._offsets
        if W % 16:  # a parameter may be a part of a buffer, from any number on
            lays_out = True
            size, offsets, _ = self._sizes(True)
        if not size:
            return None, [W, *[0] * (len(self.NAMES) - 1)]
        memory = like.new_empty(size, dtype=torch.uint8)
        first = memory.data_ptr()
        laid, *rest = (first + offset for offset in offsets)
        return memory, [laid if lays_out else W, *rest, first + offsets[1]]

    def fills(self, lays_out: bool) -> list[Kernel]:
        """What is launched to fill it; `lays_out`: W too."""
        lay = self._lay
        of = lay.of
        if not lays_out and not self._zeros:
            return []
        tiles = around.tiles_of(lay, self._width) if lays_out else 0
        run = around.lay_out(of.cell, of.dtype, tiles, self._zeros // 16, self._index)
        return [Kernel(run, self._laying if lays_out else self._zeroing)]


def product(
    lay: Layout, sizes: tuple[int, int, int], a: Side, b: Side, pitch: int, tf32: bool, adds: bool = False,
    into: torch.dtype | None = None,
) -> Product:  # fmt: skip
    """Of numbers of a scan."""
    dtype = lay.of.dtype
    return Product(dtype, into or dtype, sizes, a, b, pitch, adds, tf32 and dtype == torch.float32)
