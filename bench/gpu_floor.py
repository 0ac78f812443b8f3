"""The least time that a recurrent layer can take on one GPU: arithmetic, bytes through L2, and the exchange of h.

    arithmetic   all products of a pass, at the rate that a large product of its dtype reaches
    L2           the inputs, the outputs and their gradients once, and h once for every multiprocessor that holds a
                 part of W
    exchange     between two steps every multiprocessor that holds a part of W must have heard from all others

The longest of the three bounds a pass. Constants are measurements of one NVIDIA H200 (132 multiprocessors at 1.98 GHz,
CUDA 13.0): rates of large products by cuBLAS, exchanges by kernels that do nothing else, every CTA sending its slice of
h to all and waiting for theirs. Of another GPU nothing is said.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

DEVICE = "NVIDIA H200"
MULTIPROCESSORS = 132

PRODUCTS = {torch.float32: 390e12, torch.bfloat16: 730e12, torch.float16: 730e12}
"""Operations a second, float32 in TF32."""

L2_RATE = 5.6e12
"""Bytes a second: 8.4 MB read by 64 CTAs take 1.5 µs."""

WEIGHTS_HELD = (128 + 190) << 10
"""Bytes of W that one multiprocessor can keep: in registers and in shared memory."""

CLUSTER = {2: 0.275, 8: 0.446, 16: 0.655, 32: 1.089, 64: 1.944}
"""µs for a cluster of 8 to exchange so many KB of h through distributed shared memory; 4 and 16 differ by a tenth."""
LARGEST_CLUSTER = 16
GRID = {0: 0.86, 32: 1.75, 64: 1.95, 128: 2.34, 192: 2.65}
"""µs for a whole grid: a slice written to L2, a barrier, all of h read by a bulk copy. At 0 KB the barrier alone."""
ROWS_AT_ONCE = 8
"""The fewest rows of a batch that a matrix instruction takes."""


class Problem(NamedTuple):
    gates: int
    B: int
    T: int
    D: int
    H: int
    dtype: torch.dtype

    @property
    def item(self) -> int:
        return self.dtype.itemsize

    @property
    def flops(self) -> float:
        """Of a forward pass, one step: the input's product and the recurrent one. A backward pass has twice as many."""
        return 2.0 * self.B * self.gates * self.H * (self.D + self.H)

    @property
    def holders(self) -> int:
        """How many multiprocessors it takes to keep W."""
        return math.ceil(self.gates * self.H * self.H * self.item / WEIGHTS_HELD)

    @property
    def rows(self) -> int:
        """How many rows a copy of W serves, if there are as many copies as there is room and use for."""
        copies = max(1, min(MULTIPROCESSORS // self.holders, math.ceil(self.B / ROWS_AT_ONCE)))
        return math.ceil(self.B / copies)


def between(table: dict[int, float], kilobytes: float) -> float:
    """Straight between the entries of a table, and beyond its last two as between them."""
    sizes = sorted(table)
    if kilobytes <= sizes[0]:
        return table[sizes[0]]
    high = next((k for k in range(1, len(sizes)) if kilobytes <= sizes[k]), len(sizes) - 1)
    a, b = sizes[high - 1], sizes[high]
    return table[a] + (kilobytes - a) / (b - a) * (table[b] - table[a])


def exchange(p: Problem, backward: bool) -> float:
    """µs a step. Backward, the sums of ∂L/∂h travel, in float32; forward, h as it is multiplied."""
    if p.holders == 1:
        return 0.0
    kilobytes = p.rows * p.H * (4 if backward else p.item) / 1024
    configs = [between(GRID, kilobytes)]
    if p.holders <= LARGEST_CLUSTER:
        configs.append(between(CLUSTER, kilobytes))
    return min(configs)


def floor(p: Problem, backward: bool) -> tuple[float, str]:
    """µs a step that one pass takes at least, and what bounds it."""
    passes = 2 if backward else 1
    inside = p.holders * p.B * p.H * (4 if backward else p.item) if p.holders > 1 else 0
    outside = passes * p.B * (p.D + p.H) * p.item  # x and h; back, ∂x and ∂h too
    bounds = {
        "arithmetic": passes * p.flops / PRODUCTS[p.dtype] * 1e6,
        "L2": (inside + outside) / L2_RATE * 1e6,
        "exchange": exchange(p, backward),
    }
    which = max(bounds, key=lambda name: bounds[name])
    return bounds[which], which
