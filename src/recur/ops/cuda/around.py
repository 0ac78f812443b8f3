"""What is launched around the steps of a scan: before them W as their kernel reads it and memory that is zero
(kernels/lay_out.cu), and after those back the gradients that are sums over all rows (kernels/add_up.cu)."""

from __future__ import annotations

import functools

import torch

from recur.ops.cuda.cache import loaded
from recur.ops.cuda.device import device
from recur.ops.cuda.driver import Launch, Prepared
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.source import source

TILE_BYTES = 32 * 33 * 8
SIDE, HIGH = 32, 8
COLUMNS, LANES = 32, 16
"""Of a CTA that adds up: its columns, and the threads of each."""
FEWEST_ROWS = 64
"""Of a part of the rows: less is not worth a CTA."""
CTAS_EACH = 4
"""Of a multiprocessor."""


@functools.lru_cache(maxsize=256)
def lay_out(cell: str, dtype: torch.dtype, tiles: int, words: int, index: int) -> Prepared:
    """For so many tiles of W, and words of 16 bytes to be zero."""
    threads = SIDE * HIGH
    grid = max(1, min(max(tiles, -(-words // threads)), CTAS_EACH * device(index).multiprocessors))
    module = loaded(source(cell, dtype, ("lay_out",)), device(index).architecture, index)
    return module.function("lay_out").prepare(Launch(grid, threads, TILE_BYTES))


def tiles_of(lay: Layout, width: int) -> int:
    """Of W, rows of which have this width."""
    return lay.assembly.products * -(-width // SIDE) * -(-lay.H // SIDE)


def blocks_of(lay: Layout) -> int:
    """CTAs' columns that are added up."""
    a = lay.assembly
    return -(-(a.gates + a.own + a.extras) * lay.H // COLUMNS)


def splits_of(lay: Layout, index: int) -> int:
    """Into how many parts the rows are divided, so that there is work for all of the GPU."""
    wanted = CTAS_EACH * device(index).multiprocessors // blocks_of(lay)
    return max(1, min(wanted, lay.N // FEWEST_ROWS))


@functools.lru_cache(maxsize=256)
def add_up(cell: str, dtype: torch.dtype, grid: int, index: int) -> Prepared:
    module = loaded(source(cell, dtype, ("add_up",)), device(index).architecture, index)
    return module.function("add_up").prepare(Launch(grid, COLUMNS * LANES, LANES * (COLUMNS + 1) * 8 + 16))
