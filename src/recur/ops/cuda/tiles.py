"""How one step of many sessions is shared out among CTAs: kernels/stream_few.cu and stream_many.cu."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from recur.compiler.assembly import Assembly
from recur.ops.cuda.device import Device

THREADS = 256
WARPS = 8
FEW = 4
"""Up to so many rows, each unit's weights are read by a warp of their own."""
SUMS = {False: 128, True: 64}
"""Of a thread in registers; fewer where a product is three of TF32, whose halves need room."""
SPARE_SHARED = 2 << 10
MOST_STAGES = 4
SHAPES = ((1, 1, 8), (1, 2, 4), (2, 1, 4), (2, 2, 2), (1, 4, 2), (4, 2, 1), (2, 4, 1), (8, 1, 1), (4, 1, 2))
"""How warps divide units, rows and K."""
BYTES_A_CYCLE = 40.0
"""From L2 to a multiprocessor, its share."""
CYCLES_A_PRODUCT = 1.6
CYCLES_A_PIECE = 4.0
"""Of reading 16 bytes a thread from shared memory."""
CYCLES_A_CHUNK = 60.0
CYCLES_A_SUM = 4.0
"""Of the end of a tile, each number that warps which divided K exchange."""


class Step(NamedTuple):
    """A step, as far as a choice depends on it."""

    gates: int
    products: int
    n: int
    D: int
    H: int
    size: int
    """Bytes of a number."""
    exact: bool

    @staticmethod
    def of(a: Assembly, n: int, D: int, H: int, dtype: torch.dtype, exact: bool) -> Step:
        return Step(a.gates, a.products, n, D, H, dtype.itemsize, exact)


class Few(NamedTuple):
    units: int
    rows: int

    def ctas(self, p: Step) -> int:
        return -(-p.H // self.units) * -(-p.n // self.rows)

    def shared_bytes(self, p: Step) -> int:
        return max(16, WARPS * self.rows * (p.gates + p.products) * max(4, p.size))

    def options(self, p: Step) -> dict[str, int]:
        return {"UNITS": self.units, "ROWS": self.rows}


class Many(NamedTuple):
    warps_u: int
    warps_n: int
    warps_k: int
    blocks: int
    """Of 8 units that a warp has."""
    tiles: int
    """Of 8 rows that it has."""
    chunk: int
    """Groups of 64 bytes of K that are fetched at once."""
    stages: int

    @property
    def units(self) -> int:
        return 8 * self.blocks * self.warps_u

    @property
    def rows(self) -> int:
        return 8 * self.tiles * self.warps_n

    def m_tiles(self, p: Step) -> tuple[int, int]:
        return (p.gates * self.blocks + 1) // 2, (p.products * self.blocks + 1) // 2

    def ctas(self, p: Step) -> int:
        return -(-p.H // self.units) * -(-p.n // self.rows)

    def stage_bytes(self, p: Step) -> int:
        pitch = self.chunk * 64 + (0 if self.chunk % 2 else 64)
        return (self.warps_u * 16 * max(self.m_tiles(p)) + self.rows) * pitch

    def sums(self, p: Step) -> int:
        """Of a thread."""
        return sum(self.m_tiles(p)) * self.tiles * 4

    def shared_bytes(self, p: Step) -> int:
        return max(self.stages * self.stage_bytes(p), WARPS * self.sums(p) * 128) + self.rows * 8

    def options(self, p: Step) -> dict[str, int]:
        named = ("WARPS_U", "WARPS_N", "WARPS_K", "BLOCKS", "TILES", "CHUNK", "STAGES")
        made = dict(zip(named, self, strict=True))
        return made | {"EXACT": int(p.exact), "SHARED_BYTES": self.shared_bytes(p)}

    def cycles(self, p: Step, on: Device) -> float:
        """About: it orders tiles."""
        total = 0.0
        for K, tiles in zip((p.D, p.H), self.m_tiles(p), strict=True):
            if not tiles:
                continue
            chunks = -(-K * p.size // (64 * self.chunk))
            moved = chunks * self.chunk * 64 * (self.warps_u * 16 * tiles + self.rows)
            groups = chunks * self.chunk // self.warps_k
            products = groups * WARPS * tiles * self.tiles * 2 * (3 if p.exact else 1)
            pieces = groups * WARPS * (2 * tiles + self.tiles)
            total += max(moved / BYTES_A_CYCLE, products * CYCLES_A_PRODUCT, pieces * CYCLES_A_PIECE)
            total += chunks * CYCLES_A_CHUNK
        total += WARPS * self.sums(p) * CYCLES_A_SUM
        return total * -(-self.ctas(p) // on.multiprocessors)


Tile = Few | Many


@functools.lru_cache(maxsize=1024)
def tile_of(p: Step, on: Device) -> Tile:
    """float64 has no tensor cores here, and is taken few rows at a time."""
    if p.n <= FEW or p.size == 8:
        units = WARPS
        while units > 1 and -(-p.H // units) * -(-p.n // FEW) < 0.9 * on.multiprocessors:
            units //= 2
        return Few(units, 1 if p.n == 1 else 2 if p.n == 2 else FEW)
    return min(candidates(p, on), key=lambda tile: tile.cycles(p, on))


def candidates(p: Step, on: Device) -> list[Many]:
    found: list[Many] = []
    for u, n, k in SHAPES:
        for blocks in (1, 2):
            for tiles in (1, 2, 4, 8):
                chunk = max(2, k)
                tile = Many(u, n, k, blocks, tiles, chunk, 2)
                if tile.sums(p) > SUMS[p.exact] and tile[:5] != (1, 1, 8, 1, 1):
                    continue  # but for the smallest, which is there for any cell
                stages = min(MOST_STAGES, (on.shared - SPARE_SHARED) // tile.stage_bytes(p))
                tile = tile._replace(stages=stages)
                if stages > 1 and tile.shared_bytes(p) <= on.shared:
                    found.append(tile)
    return found
