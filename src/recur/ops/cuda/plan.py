"""How the columns of a scan and its time are shared out among threads, where there is no recurrent product."""

from __future__ import annotations

from typing import NamedTuple

from recur.ops.cuda.device import Device

BLOCKS = {4: 8, 12: 4, 32: 2}
"""Steps that a thread takes at once, by how many words of 4 bytes each may read: they are all in registers."""
ENOUGH_THREADS = {1: 1024, 2: 512}
"""On a multiprocessor, to keep the memory busy, by how many units each has: where columns are fewer, time is sliced."""
LARGEST_CTA = 512
WIDEST_CTA = 128
"""Without slices: small ones spread more evenly."""
WARP = 32
SECTOR = 32
"""Bytes of a row that a CTA reads at least."""
IN_FLIGHT = 64 << 10
"""Bytes on their way that a multiprocessor needs."""
MOST_STAGES = 8
MOST_STATES = 4
"""Of an affine map: registers hold a factor for every pair of them, of three maps."""
SPARE_SHARED = 16 << 10
"""Bytes of shared memory that are left to the system."""


class Work(NamedTuple):
    """A pass, as far as a plan depends on it."""

    columns: int
    """Units of segments, or as many of them side by side as a thread takes."""
    steps: int
    loads: int
    """Numbers of a unit that a step reads; and their bytes."""
    item: int
    stage: int
    """States that make a step an affine map; 0 where it is none."""
    vector: int = 1
    """Units of a column."""

    @property
    def slot(self) -> int:
        """The bytes that come at once: at least 4."""
        return max(4, self.vector * self.item)

    @property
    def board(self) -> int:
        """The bytes with which a thread tells others its maps, at most: in two tiles."""
        return 2 * self.vector * self.stage * (self.stage + 1) * max(4, self.item)

    @property
    def words(self) -> int:
        """Registers that a step reads into."""
        return self.loads * self.vector * max(4, self.item) // 4


class Plan(NamedTuple):
    """kernels/time.cu has these names."""

    units: int
    slices: int
    block: int
    stages: int

    @property
    def threads(self) -> int:
        return self.units * self.slices

    def shared(self, todo: Work) -> int:
        """Bytes of shared memory."""
        ring = self.stages * self.block * todo.loads * todo.slot
        return self.threads * (ring + (todo.board if self.slices > 1 else 0))

    @staticmethod
    def of(todo: Work, on: Device, forced: int | None = None) -> Plan:
        """`forced`: so many slices, if a step is an affine map."""
        block = next((block for most, block in BLOCKS.items() if todo.words <= most), 1)
        a_stage = block * todo.loads * todo.slot  # bytes of a thread
        room = on.shared - SPARE_SHARED
        fitting = room // (2 * a_stage + todo.board)
        enough = min(ENOUGH_THREADS[todo.vector], fitting)
        wanted = round(on.multiprocessors * enough / todo.columns) if forced is None else forced
        units, slices = WARP, 1
        if 0 < todo.stage <= MOST_STATES and wanted > 1:
            while units * todo.vector * todo.item > SECTOR and 2 * todo.columns < units * on.multiprocessors:
                units //= 2
            most = min(LARGEST_CTA, fitting) // units
            slices = _power(max(1, min(wanted, most, -(-todo.steps // block))))
            units = max(units, WARP // slices)
        else:
            while 2 * units <= min(WIDEST_CTA, enough) and todo.columns >= 2 * units * on.multiprocessors:
                units *= 2
        resident = max(units * slices, min(enough, todo.columns * slices // on.multiprocessors))
        stages = 2
        while stages < MOST_STAGES and (stages - 1) * resident * a_stage < IN_FLIGHT / 2:
            if Plan(units, slices, block, 2 * stages).shared(todo) > room:
                break
            stages *= 2
        return Plan(units, slices, block, stages)


def _power(most: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << most.bit_length() - 1
