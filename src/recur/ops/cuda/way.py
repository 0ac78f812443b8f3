"""A way to carry a scan's steps in one launch: how W is shared out, and what that takes. The same arithmetic as in
kernels/persistent.cu, which refuses to compile where the two differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from recur.compiler.assembly import Assembly

ALONE, CLUSTER, GRID = 0, 1, 2
NAMES = ("cta", "cluster", "grid")


@dataclass(frozen=True)
class Problem:
    """What a choice depends on."""

    products: int
    S: int
    """Rows, rounded up a little: batches of about one size have one kernel."""
    H: int
    size: int
    """Bytes of a number."""
    backward: bool
    exact: bool = False
    """Whether products of float32 are made of three of TF32."""
    pressure: int = 0
    """Registers that an element of the cell takes while v is on its way, with what was fetched for its step, about."""
    resting: int = 0
    """The same without."""
    directions: int = 1
    """Two, where a launch carries scans from both ends, each with teams of its own."""

    @property
    def sums(self) -> int:
        return 1 if self.backward else self.products

    @property
    def parts(self) -> int:
        return self.products if self.backward else 1


def rounded_up(S: int) -> int:
    """To whole tiles of eight rows, and coarser the more there are."""
    unit = 8 if S <= 256 else 64 if S <= 2048 else 512
    return -(-S // unit) * unit


@dataclass(frozen=True)
class Way:
    exchange: int
    units: int
    tiles: int
    ctas: int
    warps_m: int
    in_registers: int
    """Groups of K that a warp keeps there."""
    in_shared: int
    teams: int
    """At once; if they are fewer than the batch needs, they take turns."""
    chunk: int = 0
    """Groups of K that come through L2 at a time; 0 for all of them."""
    ring: int = 1
    """How many such chunks there is room for."""
    multicast: int = 1
    """CTAs that fetch them for each other."""
    partial: int = 0
    """Back, in a cluster: whether partial sums travel, and δ does not."""
    warps: int = 8
    """Of a CTA: 8 with all registers that there are for a thread, or 16 with half of them."""
    used: int = 0
    """Rows that a team has, of those that its products have room for; 0 for all of them."""

    def but(self, **changed: int) -> Way:
        """As dataclasses.replace, in a third of its time: thousands are made to choose one."""
        made = object.__new__(Way)
        vars(made).update(vars(self), **changed)
        return made

    @property
    def rows(self) -> int:
        """That a team's products have."""
        return 8 * self.tiles

    @property
    def own_rows(self) -> int:
        """That a team has."""
        return self.used or self.rows

    @property
    def warps_k(self) -> int:
        return self.warps // self.warps_m

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def elements(self) -> int:
        """Units of rows that a thread has."""
        return -(-self.units * self.own_rows // self.threads)

    def groups(self, p: Problem) -> int:
        group = 64 // p.size
        if self.partial:
            return -(-p.parts * self.units // group)
        return p.parts * self.width(p) // group

    def width(self, p: Problem) -> int:
        """Of a part of v, padded."""
        group = 64 // p.size
        return -(-self.ctas * self.units // group) * group

    def groups_each(self, p: Problem) -> int:
        return -(-self.groups(p) // self.warps_k)

    def m_tiles(self, p: Problem) -> int:
        if self.partial:
            return self.ctas * self.units // 16
        return -(-p.sums * self.units // 16)

    def m_each(self, p: Problem) -> int:
        return -(-self.m_tiles(p) // self.warps_m)

    def chunk_groups(self, p: Problem) -> int:
        return self.chunk or self.groups(p)

    def chunks(self, p: Problem) -> int:
        return -(-self.groups(p) // self.chunk_groups(p))

    def buffers(self) -> int:
        return 2 if self.exchange == CLUSTER else self.ring

    def chunk_bytes(self, p: Problem) -> int:
        groups = self.chunk_groups(p)
        return self.rows * (groups * 64 + (0 if groups % 2 else 64))

    def v_bytes(self, p: Problem) -> int:
        return self.chunks(p) * self.chunk_bytes(p)

    def mail_bytes(self) -> int:
        """Partial sums that come to a CTA in a step."""
        return self.ctas * self.units * self.rows * 4

    def part_bytes(self, p: Problem) -> int:
        if self.partial:
            return 2 * self.mail_bytes()
        return self.warps_k * self.rows * ((self.m_tiles(p) * 16 + 31) // 32 * 32 + 4) * 4

    def shared_bytes(self, p: Problem) -> int:
        kept = min(self.in_registers, self.groups_each(p))
        kept_shared = min(self.in_shared, self.groups_each(p) - kept)
        total = self.chunk_bytes(p) * self.buffers()
        total += (kept_shared * self.m_each(p) * 2 * self.threads + 1) * 16
        total += self.part_bytes(p) + self.threads * p.parts * p.size + 16 * self.buffers()
        return -(-total // 16) * 16

    def streamed(self, p: Problem) -> int:
        """Groups of K of each warp that are read from L2 at every step."""
        return max(0, self.groups_each(p) - self.in_registers - self.in_shared)

    def group_registers(self, p: Problem) -> int:
        """What a group of K takes that is kept there: exact products have the two halves of each number."""
        return self.m_each(p) * (16 if p.exact else 8)

    def registers(self, p: Problem) -> int:
        """What a thread takes, about: weights, sums, the numbers of its elements."""
        each = self.m_each(p)
        weights = min(self.in_registers, self.groups_each(p)) * self.group_registers(p)
        split = each * 16 + 36 if p.exact else 0
        waiting = p.pressure if self.elements <= 2 else p.resting
        return weights + each * self.tiles * 4 + split + self.elements * waiting + 44

    def options(self, p: Problem) -> tuple[tuple[str, int], ...]:
        """As the kernels are built with it."""
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

    def words(self) -> str:
        """For a reader."""
        sharing = "one CTA" if self.ctas == 1 else f"{self.ctas} CTAs"
        shared = f", {self.multicast} of which fetch together" if self.multicast > 1 else ""
        shared += ", partial sums" if self.partial else ""
        shared += f", {self.warps} warps" if self.warps != 8 else ""
        return f"{NAMES[self.exchange]}: {self.own_rows} rows on {sharing} of {self.units} units{shared}"

    def numbers(self) -> dict[str, int]:
        return asdict(self)


def pressure(a: Assembly, backward: bool) -> tuple[int, int]:
    """Registers that an element of a cell takes while its team's v is on its way, about: with what was fetched for its
    step, and without."""
    if backward:
        return a.gates + a.saved + 4 * a.states + a.extras + 4, a.states + a.extras + 3
    return a.gates + a.states + 4, a.states + 3
