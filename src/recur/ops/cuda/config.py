"""Kernel configurations: how a kernel divides a scan among CTAs, warps and threads, and what that needs.

The arithmetic is the same as in kernels/persistent.cu, which has static_asserts for the results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from recur.compiler.assembly import Assembly
from recur.ops.cuda.driver import DeviceInfo

SINGLE_CTA, CLUSTER, GRID = 0, 1, 2
EXCHANGE_NAMES = ("cta", "cluster", "grid")


@dataclass(frozen=True)
class ScanShape:
    """Sizes of a scan, as far as the choice of a configuration depends on them."""

    products: int
    """Gates with a product W h: the rows of W are products · H."""
    S: int
    """Rows, rounded up: batches of similar size share a kernel."""
    H: int
    """Hidden size."""
    size: int
    """Bytes of an element."""
    backward: bool
    exact: bool = False
    """True if a float32 product is computed as three TF32 products."""
    pressure: int = 0
    """Estimated registers per element while v is in flight, with the prefetched operands of its step."""
    resting: int = 0
    """Estimated registers per element without prefetched operands."""
    directions: int = 1
    """2 if one launch runs the scans of both directions, each with its own teams."""

    @property
    def sums(self) -> int:
        """Sums per unit that a product computes."""
        return 1 if self.backward else self.products

    @property
    def parts(self) -> int:
        """Numbers per unit in the vector v that W (backward: Wᵀ) is multiplied with."""
        return self.products if self.backward else 1


def round_up_rows(S: int) -> int:
    """Round up to tiles of eight rows, in coarser steps for large batches."""
    unit = 8 if S <= 256 else 64 if S <= 2048 else 512
    return -(-S // unit) * unit


@dataclass(frozen=True)
class KernelConfig:
    """Configuration of a persistent kernel: all steps of a scan in one launch.

    A team of CTAs scans some rows of the batch, and each CTA of the team owns some units. K is the dimension that a
    matrix product sums over; its weights are kept in groups of 64 bytes.
    """

    exchange: int
    """How CTAs exchange h: SINGLE_CTA, CLUSTER or GRID."""
    units: int
    """Units per CTA."""
    tiles: int
    """Tiles of eight rows per team."""
    ctas: int
    """CTAs per team."""
    warps_m: int
    """Warps that divide the units of a CTA; the other factor, `warps_k`, divides K."""
    in_registers: int
    """Groups of K whose weights a warp keeps in registers."""
    in_shared: int
    """Groups of K whose weights a warp keeps in shared memory."""
    teams: int
    """Concurrent teams. If the batch needs more, teams take turns."""
    chunk: int = 0
    """Groups of K per chunk of v that is fetched through L2; 0 for all."""
    ring: int = 1
    """Number of chunk buffers."""
    multicast: int = 1
    """CTAs that fetch chunks for each other."""
    partial: int = 0
    """Backward in a cluster: exchange partial sums instead of δ."""
    warps: int = 8
    """Warps of a CTA: 8 with all registers of a thread, or 16 with half of them."""
    used: int = 0
    """Rows of a team; 0 for all rows of its tiles."""

    def with_changes(self, **changed: int) -> KernelConfig:
        """Return a copy with changed fields.

        Three times as fast as dataclasses.replace; the search makes thousands of copies.
        """
        made = object.__new__(KernelConfig)
        vars(made).update(vars(self), **changed)
        return made

    @property
    def rows(self) -> int:
        """Rows of the matmul tiles of a team."""
        return 8 * self.tiles

    @property
    def own_rows(self) -> int:
        """Rows of the batch that a team scans."""
        return self.used or self.rows

    @property
    def warps_k(self) -> int:
        return self.warps // self.warps_m

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def elements(self) -> int:
        """Elements (one unit of one row) per thread."""
        return -(-self.units * self.own_rows // self.threads)

    def groups(self, p: ScanShape) -> int:
        group = 64 // p.size
        if self.partial:
            return -(-p.parts * self.units // group)
        return p.parts * self.width(p) // group

    def width(self, p: ScanShape) -> int:
        """Width of a part of v, padded."""
        group = 64 // p.size
        return -(-self.ctas * self.units // group) * group

    def groups_each(self, p: ScanShape) -> int:
        """Groups of K per warp."""
        return -(-self.groups(p) // self.warps_k)

    def m_tiles(self, p: ScanShape) -> int:
        if self.partial:
            return self.ctas * self.units // 16
        return -(-p.sums * self.units // 16)

    def m_each(self, p: ScanShape) -> int:
        """Tiles of 16 sums per warp."""
        return -(-self.m_tiles(p) // self.warps_m)

    def chunk_groups(self, p: ScanShape) -> int:
        return self.chunk or self.groups(p)

    def chunks(self, p: ScanShape) -> int:
        return -(-self.groups(p) // self.chunk_groups(p))

    def buffers(self) -> int:
        return 2 if self.exchange == CLUSTER else self.ring

    def chunk_bytes(self, p: ScanShape) -> int:
        groups = self.chunk_groups(p)
        return self.rows * (groups * 64 + (0 if groups % 2 else 64))

    def v_bytes(self, p: ScanShape) -> int:
        return self.chunks(p) * self.chunk_bytes(p)

    def mail_bytes(self) -> int:
        """Bytes of partial sums that a CTA receives per step."""
        return self.ctas * self.units * self.rows * 4

    def part_bytes(self, p: ScanShape) -> int:
        if self.partial:
            return 2 * self.mail_bytes()
        return self.warps_k * self.rows * ((self.m_tiles(p) * 16 + 31) // 32 * 32 + 4) * 4

    def shared_bytes(self, p: ScanShape) -> int:
        kept = min(self.in_registers, self.groups_each(p))
        kept_shared = min(self.in_shared, self.groups_each(p) - kept)
        total = self.chunk_bytes(p) * self.buffers()
        total += (kept_shared * self.m_each(p) * 2 * self.threads + 1) * 16
        total += self.part_bytes(p) + self.threads * p.parts * p.size + 16 * self.buffers()
        return -(-total // 16) * 16

    def streamed(self, p: ScanShape) -> int:
        """Groups of K whose weights each warp reads from L2 at every step."""
        return max(0, self.groups_each(p) - self.in_registers - self.in_shared)

    def group_registers(self, p: ScanShape) -> int:
        """Registers per group of K that a warp keeps; exact products keep each number as two TF32 numbers."""
        return self.m_each(p) * (16 if p.exact else 8)

    def registers(self, p: ScanShape) -> int:
        """Estimated registers of a thread: weights, sums and the numbers of its elements."""
        each = self.m_each(p)
        weights = min(self.in_registers, self.groups_each(p)) * self.group_registers(p)
        split = each * 16 + 36 if p.exact else 0
        waiting = p.pressure if self.elements <= 2 else p.resting
        return weights + each * self.tiles * 4 + split + self.elements * waiting + 44

    def options(self, p: ScanShape) -> tuple[tuple[str, int], ...]:
        """Return the macros of the kernel."""
        return (
            ("EXCHANGE", self.exchange),
            ("UNITS", self.units),
            ("TILES", self.tiles),
            ("USED", self.own_rows),
            ("CTAS", self.ctas),
            ("THREADS", self.threads),
            ("WARPS_M", self.warps_m),
            ("WARPS_K", self.warps_k),
            ("IN_REGISTERS", self.in_registers),
            ("IN_SHARED", self.in_shared),
            ("CHUNK", self.chunk_groups(p)),
            ("RING", self.buffers()),
            ("MULTICAST", self.multicast),
            ("PARTIAL", self.partial),
            ("BACKWARD", int(p.backward)),
            ("EXACT", int(p.exact)),
            ("SHARED_BYTES", self.shared_bytes(p)),
            ("DIRECTIONS", p.directions),
        )

    def describe(self) -> str:
        """Return a short description."""
        sharing = "one CTA" if self.ctas == 1 else f"{self.ctas} CTAs"
        shared = f", {self.multicast} of which fetch together" if self.multicast > 1 else ""
        shared += ", partial sums" if self.partial else ""
        shared += f", {self.warps} warps" if self.warps != 8 else ""
        return f"{EXCHANGE_NAMES[self.exchange]}: {self.own_rows} rows on {sharing} of {self.units} units{shared}"


def register_pressure(a: Assembly, backward: bool) -> tuple[int, int]:
    """Return the estimated registers of an element while v is in flight, with and without the prefetched operands."""
    if backward:
        return a.gates + a.saved + 4 * a.states + a.extras + 4, a.states + a.extras + 3
    return a.gates + a.states + 4, a.states + 3


BLOCK_STEPS = {4: 8, 12: 4, 32: 2}
"""Steps per block, by the number of 32-bit words that a step reads: they are all in registers."""
ENOUGH_THREADS = {1: 1024, 2: 512}
"""Threads per multiprocessor that keep the memory busy, by units per thread. With fewer columns, time is sliced."""
MAX_SLICED_THREADS = 512
MAX_UNSLICED_THREADS = 128
"""Threads of a CTA without slices; small CTAs are distributed more evenly."""
WARP = 32
SECTOR = 32
"""Bytes of a memory sector: the least that a CTA reads of a row."""
IN_FLIGHT = 64 << 10
"""Bytes in flight that a multiprocessor needs."""
MAX_ELEMENTWISE_STAGES = 8
MAX_AFFINE_STATES = 4
"""States of an affine map: three maps with n · n factors must fit into registers."""
ELEMENTWISE_SPARE_SHARED = 16 << 10
"""Bytes of shared memory that are left free."""


Select = Callable[[ScanShape, list[KernelConfig]], Sequence[KernelConfig | None]]
"""Function from a scan and the configurations that fit to those to try, in order; None is one launch per step."""
EXTRA_BARRIER, MISSING_BARRIER = 1 << 16, 1 << 17
"""Flags of `Overrides.delays`: one barrier more than a cluster needs, and one less than any configuration needs."""


@dataclass(frozen=True)
class Overrides:
    """Kernel choices that tests and timing runs force; by default, nothing is forced."""

    select: Select | None = None
    """Replaces the heuristics and the tuning tables."""
    delays: int = 0
    """Seed in the lower 16 bits: CTAs and warps of a persistent kernel wait at pseudo-random points."""
    slices: int | None = None
    """Slices of time of an element-wise kernel; 1 for none."""

    @property
    def changes_kernels(self) -> bool:
        """Whether persistent kernels differ from those that are cached for ordinary calls."""
        return self.select is not None or self.delays != 0


_active = [Overrides()]


def active_overrides() -> Overrides:
    return _active[-1]


@contextmanager
def override(**changes: Any) -> Iterator[None]:
    """Force fields of `Overrides` inside a `with` block, in all threads.

    Not a context variable, because autograd runs the backward pass in another thread.
    """
    _active.append(replace(_active[-1], **changes))
    try:
        yield
    finally:
        _active.pop()


class ElementwiseWork(NamedTuple):
    """Sizes of an element-wise pass, as far as the choice of a configuration depends on them."""

    columns: int
    """Columns of threads: units of segments divided by `vector`."""
    steps: int
    loads: int
    """Numbers of a unit that a step reads."""
    item: int
    """Bytes of each number."""
    stage: int
    """Number of states if the step is an affine map of them; otherwise 0."""
    vector: int = 1
    """Adjacent units per thread."""

    @property
    def slot(self) -> int:
        """Bytes of one copy: at least 4."""
        return max(4, self.vector * self.item)

    @property
    def board(self) -> int:
        """Upper limit in bytes of the maps that a thread exchanges, for two tiles."""
        return 2 * self.vector * self.stage * (self.stage + 1) * max(4, self.item)

    @property
    def words(self) -> int:
        """Registers for the operands of a step."""
        return self.loads * self.vector * max(4, self.item) // 4


class ElementwiseConfig(NamedTuple):
    """Configuration of an element-wise kernel; the names are those of kernels/time.cu."""

    units: int
    slices: int
    block: int
    stages: int

    @property
    def threads(self) -> int:
        return self.units * self.slices

    def shared(self, todo: ElementwiseWork) -> int:
        ring = self.stages * self.block * todo.loads * todo.slot
        return self.threads * (ring + (todo.board if self.slices > 1 else 0))

    @staticmethod
    def of(todo: ElementwiseWork, on: DeviceInfo, forced: int | None = None) -> ElementwiseConfig:
        """Choose a configuration. `forced`: number of slices, if the step is an affine map."""
        block = next((block for most, block in BLOCK_STEPS.items() if todo.words <= most), 1)
        a_stage = block * todo.loads * todo.slot  # bytes per thread
        room = on.shared - ELEMENTWISE_SPARE_SHARED
        fitting = room // (2 * a_stage + todo.board)
        enough = min(ENOUGH_THREADS[todo.vector], fitting)
        wanted = round(on.multiprocessors * enough / todo.columns) if forced is None else forced
        units, slices = WARP, 1
        if 0 < todo.stage <= MAX_AFFINE_STATES and wanted > 1:
            while units * todo.vector * todo.item > SECTOR and 2 * todo.columns < units * on.multiprocessors:
                units //= 2
            most = min(MAX_SLICED_THREADS, fitting) // units
            slices = _floor_power_of_two(max(1, min(wanted, most, -(-todo.steps // block))))
            units = max(units, WARP // slices)
        else:
            while 2 * units <= min(MAX_UNSLICED_THREADS, enough) and todo.columns >= 2 * units * on.multiprocessors:
                units *= 2
        resident = max(units * slices, min(enough, todo.columns * slices // on.multiprocessors))
        stages = 2
        while stages < MAX_ELEMENTWISE_STAGES and (stages - 1) * resident * a_stage < IN_FLIGHT / 2:
            if ElementwiseConfig(units, slices, block, 2 * stages).shared(todo) > room:
                break
            stages *= 2
        return ElementwiseConfig(units, slices, block, stages)


def _floor_power_of_two(most: int) -> int:
    return 1 << most.bit_length() - 1


STREAM_THREADS = 256
STREAM_WARPS = 8
SMALL_BATCH_ROWS = 4
"""Largest batch for which one warp reads the weights of one unit."""
MAX_ACCUMULATORS = {False: 128, True: 64}
"""Accumulators per thread, by `exact`: three TF32 products need registers for the halves."""
STREAM_SPARE_SHARED = 2 << 10
MAX_STREAM_STAGES = 4
WARP_GRIDS = ((1, 1, 8), (1, 2, 4), (2, 1, 4), (2, 2, 2), (1, 4, 2), (4, 2, 1), (2, 4, 1), (8, 1, 1), (4, 1, 2))
"""Warps that divide units, rows and K."""
L2_BYTES_PER_CYCLE = 40.0
"""Bytes per cycle from L2 to one multiprocessor."""
CYCLES_PER_PRODUCT = 1.6
CYCLES_PER_SHARED_LOAD = 4.0
"""Cycles to read 16 bytes per thread from shared memory."""
CYCLES_PER_CHUNK = 60.0
CYCLES_PER_ACCUMULATOR = 4.0
"""Cycles per number that warps exchange at the end of a tile if they divided K."""


class StreamStep(NamedTuple):
    """Sizes of a streaming step, as far as the choice of a tile depends on them."""

    gates: int
    products: int
    n: int
    D: int
    H: int
    size: int
    """Bytes of an element."""
    exact: bool

    @staticmethod
    def of(a: Assembly, n: int, D: int, H: int, dtype: torch.dtype, exact: bool) -> StreamStep:
        return StreamStep(a.gates, a.products, n, D, H, dtype.itemsize, exact)


class SmallBatchTile(NamedTuple):
    """Tile of a streaming step for few sessions, without tensor cores."""

    units: int
    rows: int

    def ctas(self, p: StreamStep) -> int:
        return -(-p.H // self.units) * -(-p.n // self.rows)

    def shared_bytes(self, p: StreamStep) -> int:
        return max(16, STREAM_WARPS * self.rows * (p.gates + p.products) * max(4, p.size))

    def options(self, p: StreamStep) -> dict[str, int]:
        return {"UNITS": self.units, "ROWS": self.rows}


class LargeBatchTile(NamedTuple):
    """Tile of a streaming step for many sessions, on tensor cores; warps divide units (u), rows (n) and K (k)."""

    warps_u: int
    warps_n: int
    warps_k: int
    blocks: int
    """Blocks of 8 units per warp."""
    tiles: int
    """Tiles of 8 rows per warp."""
    chunk: int
    """Groups of 64 bytes of K per fetch."""
    stages: int

    @property
    def units(self) -> int:
        return 8 * self.blocks * self.warps_u

    @property
    def rows(self) -> int:
        return 8 * self.tiles * self.warps_n

    def m_tiles(self, p: StreamStep) -> tuple[int, int]:
        return (p.gates * self.blocks + 1) // 2, (p.products * self.blocks + 1) // 2

    def ctas(self, p: StreamStep) -> int:
        return -(-p.H // self.units) * -(-p.n // self.rows)

    def stage_bytes(self, p: StreamStep) -> int:
        pitch = self.chunk * 64 + (0 if self.chunk % 2 else 64)
        return (self.warps_u * 16 * max(self.m_tiles(p)) + self.rows) * pitch

    def sums(self, p: StreamStep) -> int:
        """Return the number of accumulators of a thread."""
        return sum(self.m_tiles(p)) * self.tiles * 4

    def shared_bytes(self, p: StreamStep) -> int:
        return max(self.stages * self.stage_bytes(p), STREAM_WARPS * self.sums(p) * 128) + self.rows * 8

    def options(self, p: StreamStep) -> dict[str, int]:
        named = ("WARPS_U", "WARPS_N", "WARPS_K", "BLOCKS", "TILES", "CHUNK", "STAGES")
        made = dict(zip(named, self, strict=True))
        return made | {"EXACT": int(p.exact), "SHARED_BYTES": self.shared_bytes(p)}

    def cycles(self, p: StreamStep, on: DeviceInfo) -> float:
        """Estimate the cycles of a step, to rank tiles."""
        total = 0.0
        for K, tiles in zip((p.D, p.H), self.m_tiles(p), strict=True):
            if not tiles:
                continue
            chunks = -(-K * p.size // (64 * self.chunk))
            moved = chunks * self.chunk * 64 * (self.warps_u * 16 * tiles + self.rows)
            groups = chunks * self.chunk // self.warps_k
            products = groups * STREAM_WARPS * tiles * self.tiles * 2 * (3 if p.exact else 1)
            pieces = groups * STREAM_WARPS * (2 * tiles + self.tiles)
            total += max(moved / L2_BYTES_PER_CYCLE, products * CYCLES_PER_PRODUCT, pieces * CYCLES_PER_SHARED_LOAD)
            total += chunks * CYCLES_PER_CHUNK
        total += STREAM_WARPS * self.sums(p) * CYCLES_PER_ACCUMULATOR
        return total * -(-self.ctas(p) // on.multiprocessors)


StreamTile = SmallBatchTile | LargeBatchTile


@functools.lru_cache(maxsize=1024)
def choose_tile(p: StreamStep, on: DeviceInfo) -> StreamTile:
    """Choose the tile of a step. float64 has no tensor-core kernel and uses small batches."""
    if p.n <= SMALL_BATCH_ROWS or p.size == 8:
        units = STREAM_WARPS
        while units > 1 and -(-p.H // units) * -(-p.n // SMALL_BATCH_ROWS) < 0.9 * on.multiprocessors:
            units //= 2
        return SmallBatchTile(units, 1 if p.n == 1 else 2 if p.n == 2 else SMALL_BATCH_ROWS)
    return min(list_tiles(p, on), key=lambda tile: tile.cycles(p, on))


def list_tiles(p: StreamStep, on: DeviceInfo) -> list[LargeBatchTile]:
    """Return the tiles that fit into the registers and the shared memory of the device."""
    found: list[LargeBatchTile] = []
    for u, n, k in WARP_GRIDS:
        for blocks in (1, 2):
            for tiles in (1, 2, 4, 8):
                chunk = max(2, k)
                tile = LargeBatchTile(u, n, k, blocks, tiles, chunk, 2)
                if tile.sums(p) > MAX_ACCUMULATORS[p.exact] and tile[:5] != (1, 1, 8, 1, 1):
                    continue  # the smallest tile stays: every cell needs one
                stages = min(MAX_STREAM_STAGES, (on.shared - STREAM_SPARE_SHARED) // tile.stage_bytes(p))
                tile = tile._replace(stages=stages)
                if stages > 1 and tile.shared_bytes(p) <= on.shared:
                    found.append(tile)
    return found
