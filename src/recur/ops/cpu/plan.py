"""A scan prepared for the C++ core: its struct, whole but for where the tensors of a call lie.

What depends on shapes is worked out once for each form of call. A call is then a list of tensors, whose addresses the
core puts where they belong: a small scan is over before Python could do so.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from recur.ops.cpu import library
from recur.ops.cpu.programs import load

WORDS = {name: getattr(library.Scan, name).offset // 8 for name, *_ in library.Scan._fields_}
"""Where each field of the struct stands, in words of eight bytes: numbers and pointers are one word each."""
TABLES = ctypes.sizeof(library.Scan) // 8
"""Behind the struct stand the arrays of pointers that it points to."""

OWN, SCRATCH = -1, -2
"""As in core.h: the struct itself, and memory that is there for as long as a call is."""

Where: TypeAlias = tuple[int, int]
"""In which of a call's tensors something lies, or in its scratch memory, and how many bytes behind its start."""


class How(NamedTuple):
    """What the core is run with."""

    threads: int
    isa: int
    parallel: int | None
    """The entry of torch's pool of threads."""


def how_now() -> How:
    """As things stand now."""
    core = library.core()
    assert core is not None
    return How(torch.get_num_threads(), core.isa, core.parallel)


class Form(NamedTuple):
    """The numbers of a scan's struct, and which program it runs."""

    cell: str
    program: str
    dtype: torch.dtype
    D: int
    H: int
    sizes: tuple[int, ...]
    """How many segments take each step; batch-major, S and the number of steps."""
    batch_major: bool
    biased: bool
    projection: int = 0
    products: str = ""
    """What products read, if not the numbers as they are: bfloat16 or int8."""
    clip: float = 0.0
    padded_rows: int = 0
    along_time: bool = False
    share_stride: int = 0
    """As in core.h."""

    @property
    def numbers(self) -> int:
        """One of core.h's."""
        return library.NUMBERS.index(self.products or str(self.dtype).removeprefix("torch."))


class Plan:
    """A scan whose tensors change from call to call.

    fields   pointers of the struct: where in the tensors of a call they point to; all others are null
    tables   its arrays of pointers, in which None is null
    tensors  how many a call has
    scratch  how many bytes of scratch memory they point into; the workspace comes behind
    """

    def __init__(
        self,
        form: Form,
        how: How,
        fields: Mapping[str, Where],
        tables: Mapping[str, Sequence[Where | None]],
        tensors: int,
        scratch: int = 0,
    ) -> None:
        core = library.core()
        assert core is not None
        cell = load(form.cell)
        a, backward = cell.assembly, form.program in ("back", "trace")
        sizes = array("q", form.sizes[:1]) * form.sizes[1] if form.batch_major else array("q", form.sizes)
        program, constants = (cell.along_time if form.along_time else cell.encoded)[form.program]
        scan = library.Scan(
            D=form.D, H=form.H, gates=a.gates, products=a.products, states=a.states, extras=a.extras, saved=a.saved,
            own=a.own, heads=a.heads, projection=form.projection, steps=len(sizes), N=sum(sizes), S=form.sizes[0],
            sizes=sizes.buffer_info()[0], batch_major=form.batch_major, biased=form.biased, clip=form.clip,
            along_time=form.along_time, threads=how.threads, parallel=how.parallel, constants=len(constants),
            constant=ctypes.addressof(constants), program=program, padded_rows=form.padded_rows,
            product_place=ctypes.addressof(cell.product_places), adds_to_first=a.adds_to_first,
            share_stride=form.share_stride,
        )  # fmt: skip
        bindings, used = array("q"), TABLES
        for name, where in (*fields.items(), ("workspace", (SCRATCH, scratch))):
            bindings.extend((WORDS[name], *where))
        for name, table in tables.items():
            if table:
                bindings.extend((WORDS[name], OWN, 8 * used))
            for entry in table:
                if entry is not None:
                    bindings.extend((used, *entry))
                used += 1
        # How much memory it takes depends on which pointers are given, not on where they point.
        asked = library.Scan.from_buffer_copy(scan)
        for name in fields.keys() & {"mask", "packed"}:
            setattr(asked, name, 1)
        asked.d_weight_ih = asked.d_weight_hh = 1
        workspace = core.workspace_bytes(asked, how.isa, form.numbers, int(backward))
        words = array("q", bytes(scan) + bytes(8 * (used - TABLES)))
        self.prepared = library.Prepared(
            words.buffer_info()[0], len(words), bindings.buffer_info()[0], len(bindings) // 3,
            scratch + workspace, how.isa, form.numbers, backward,
        )  # fmt: skip
        self._alive = cell, sizes, words, bindings
        self.core, self._run, self._address = core, core.run, ctypes.addressof(self.prepared)
        self._addresses = struct.Struct(f"{tensors}Q").pack

    def run(self, tensors: Sequence[Tensor]) -> None:
        """Do it, on memory that is contiguous."""
        if status := self._run(self._address, 1, self._addresses(*map(_ADDRESS, tensors))):
            self.core.fail(status)

    def call(self, tensors: Sequence[Tensor]) -> Callable[[], int]:
        """The core's part of a run, to be measured. The tensors have to outlive it."""
        return functools.partial(self._run, self._address, 1, self._addresses(*map(_ADDRESS, tensors)))

    def bound(self, tensors: Sequence[Tensor], scratch: int = 0) -> library.Scan:
        """The struct that a call of these tensors runs on, given the address of scratch memory."""
        words = (ctypes.c_int64 * self.prepared.count)()
        addresses = self._addresses(*map(_ADDRESS, tensors))
        self.core.bind(self._address, addresses, scratch, ctypes.addressof(words))
        return library.Scan.from_buffer(words)

    def pack(self, tensors: Sequence[Tensor]) -> Tensor:
        """The weights as the core reads them, in memory of their own, for any number of rows."""
        scan, isa, numbers = self.bound(tensors), self.prepared.isa, self.prepared.numbers
        like, size = tensors[0], self.core.packed_bytes(scan, isa, numbers)
        packed = like.new_empty(size // like.element_size() + 1)
        scan.packed, scan.workspace = packed.data_ptr(), None
        if status := self.core.pack(ctypes.addressof(scan), isa, numbers):
            self.core.fail(status)
        return packed


_ADDRESS = Tensor.data_ptr
