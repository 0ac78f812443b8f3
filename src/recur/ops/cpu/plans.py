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

from recur.compiler.signature import Signature
from recur.ops.cpu import library
from recur.ops.cpu.programs import load_programs

WORDS = {name: getattr(library.ScanStruct, name).offset // 8 for name, *_ in library.ScanStruct._fields_}
"""TensorOffset each field of the struct stands, in words of eight bytes: numbers and pointers are one word each."""
TABLES = ctypes.sizeof(library.ScanStruct) // 8
"""Behind the struct stand the arrays of pointers that it points to."""

OWN, SCRATCH = -1, -2
"""As in core.h: the struct itself, and memory that is there for as long as a call is."""

TensorOffset: TypeAlias = tuple[int, int]
"""In which of a call's tensors something lies, or in its scratch memory, and how many bytes behind its start."""


class CoreConfig(NamedTuple):
    """What the core is run with."""

    threads: int
    isa: int
    parallel: int | None
    """The entry of torch's pool of threads."""


def current_config() -> CoreConfig:
    """As things stand now."""
    core = library.core()
    assert core is not None
    return CoreConfig(torch.get_num_threads(), core.isa, core.parallel)


class ScanParameters(NamedTuple):
    """The numbers of a scan's struct, and which program it runs."""

    cell: str
    program: str
    dtype: torch.dtype
    D: int
    H: int
    sizes: tuple[int, ...]
    """CoreConfig many segments take each step; batch-major, S and the number of steps."""
    batch_major: bool
    biased: bool
    projection: int = 0
    matmul_dtype: str = ""
    """What products read, if not the numbers as they are: bfloat16 or int8."""
    clip: float = 0.0
    padded_rows: int = 0
    along_time: bool = False
    share_stride: int = 0
    """As in core.h."""

    @property
    def numbers(self) -> int:
        """One of core.h's."""
        return library.NUMBERS.index(self.matmul_dtype or str(self.dtype).removeprefix("torch."))


class CorePlan:
    """A scan whose tensors change from call to call.

    fields   pointers of the struct: where in the tensors of a call they point to; all others are null
    tables   its arrays of pointers, in which None is null
    tensors  how many a call has
    scratch  how many bytes of scratch memory they point into; the workspace comes behind
    """

    def __init__(
        self,
        form: ScanParameters,
        how: CoreConfig,
        fields: Mapping[str, TensorOffset],
        tables: Mapping[str, Sequence[TensorOffset | None]],
        tensors: int,
        scratch: int = 0,
    ) -> None:
        core = library.core()
        assert core is not None
        cell = load_programs(form.cell)
        a, backward = cell.assembly, form.program in ("back", "trace")
        sizes = array("q", form.sizes[:1]) * form.sizes[1] if form.batch_major else array("q", form.sizes)
        program, constants = (cell.along_time if form.along_time else cell.encoded)[form.program]
        scan = library.ScanStruct(
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
        asked = library.ScanStruct.from_buffer_copy(scan)
        for name in fields.keys() & {"mask", "packed"}:
            setattr(asked, name, 1)
        asked.d_weight_ih = asked.d_weight_hh = 1
        workspace = core.workspace_bytes(asked, how.isa, form.numbers, int(backward))
        words = array("q", bytes(scan) + bytes(8 * (used - TABLES)))
        self.prepared = library.PreparedStruct(
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

    def bound(self, tensors: Sequence[Tensor], scratch: int = 0) -> library.ScanStruct:
        """The struct that a call of these tensors runs on, given the address of scratch memory."""
        words = (ctypes.c_int64 * self.prepared.count)()
        addresses = self._addresses(*map(_ADDRESS, tensors))
        self.core.bind(self._address, addresses, scratch, ctypes.addressof(words))
        return library.ScanStruct.from_buffer(words)

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


ALIGNMENT = 64
"""Bytes: a line of the cache, and the widest vector."""


class Arena:
    """One tensor for several things, each from a multiple of 64 bytes on."""

    def __init__(self, tensor: int, item: int) -> None:
        self._tensor, self._item = tensor, item
        self.numbers = 0
        """How many there is room for."""
        self.gaps: list[tuple[int, int]] = []
        """Between the parts: where each begins, and the next part."""

    def take(self, numbers: int) -> TensorOffset:
        begin, whole = self.numbers, ALIGNMENT // self._item
        self.numbers = begin + (numbers + whole - 1) // whole * whole
        self.gaps.append((begin + numbers, self.numbers))
        return self._tensor, begin * self._item


class SavedLayout(NamedTuple):
    """What a forward pass saves beside its outputs."""

    slab: Arena
    share: TensorOffset | None
    """What the gates' places hold."""
    tape: TensorOffset | None
    others: list[TensorOffset]
    """The history of all states that are no output; with a projection, of what it is made of too."""


class ScanSizes:
    """The letters of a signature, and the shapes of what is made of them."""

    def __init__(self, signature: Signature) -> None:
        a = self.assembly = load_programs(signature.cell).assembly
        self.batch_major, self.item = len(signature.shape) == 3, signature.dtype.itemsize
        self.N, self.S = signature.shape[0], signature.shape[0] if self.batch_major else signature.sizes[0]
        if self.batch_major:
            self.N *= signature.shape[1]
        self.D, self.H = signature.shape[-1], signature.first_rows // a.gates
        self.weight_names = a.weight_names(signature.weights)
        self.projection = P = signature.last_rows if "weight_hr" in self.weight_names else 0
        columns = a.gates * self.H
        # Rows 2 KiB apart would compete for the same sets of the cache: they are padded.
        self.share_stride = columns + (ALIGNMENT // self.item if columns * self.item % 2048 == 0 else 0)
        matrices = [(columns, self.D), (a.products * self.H, (P or self.H) // a.heads)]
        self.matrices = matrices if a.products else matrices[:1]
        """The shapes of U and W."""
        widths = [P or self.H, *[self.H] * (a.states - 1)]
        self.outputs: list[Sequence[int]] = [(*signature.shape[:-1], widths[j]) for j in a.outputs]
        self.finals: list[Sequence[int]] = [(self.S, width) for width in widths]
        self.recorded: list[Sequence[int]] = [(self.N, width) for width in (*widths, columns, a.products * self.H)]
        """What a trace records: the gradient of every state, of all gates' input shares, and of all products."""

    def results(self, train: bool) -> list[Sequence[int]]:
        """The shapes of outputs, final states, and what is saved, if anything is."""
        saved = self.saved(0)
        return [*self.outputs, *self.finals, *[(saved.slab.numbers,)] * (train and bool(saved.slab.gaps))]

    def saved(self, tensor: int) -> SavedLayout:
        """In this tensor of a call."""
        a, slab = self.assembly, Arena(tensor, self.item)
        share = slab.take(self.N * self.share_stride) if a.reads_share else None
        tape = slab.take(self.N * a.saved * self.H) if a.saved else None
        kept = a.states - (0 if self.projection else len(a.outputs))
        return SavedLayout(slab, share, tape, [slab.take(self.N * self.H) for _ in range(kept)])

    def histories(
        self, outputs: Sequence[TensorOffset | None], others: Sequence[TensorOffset]
    ) -> list[TensorOffset | None]:
        """What the programs return of every state, in their order; None where it is not kept."""
        rest, given = iter(others), [] if self.projection else self.assembly.outputs
        return [outputs[given.index(j)] if j in given else next(rest, None) for j in range(self.assembly.states)]


def pads_rows(shape: Sequence[int]) -> bool:
    """Whether a few columns more would make a matrix's rows whole panels, of which the widest have 32 columns."""
    return shape[-1] >= 256 and shape[-1] % 32 != 0


def padded_like(weight: Tensor) -> Tensor:
    """Memory for a weight's gradient, enough for padded rows: until it is written, the packed weight lies there."""
    rows, columns = weight.shape
    return weight.new_empty(rows * (columns + -columns % 32))[: rows * columns].view(rows, columns)


MOST_SEGMENTS, LEAST_STEPS = 8, 16
"""Up to so many segments of so many steps, a program takes steps of one segment as its rows, where it can; more
segments are rows enough at every step. Measured: with 4 to 16 both ways take the same time on one thread; where threads
are more than segments, only this one has work for all."""

Fields = dict[str, TensorOffset]
Tables = dict[str, Sequence[TensorOffset | None]]
Piece = tuple[tuple[int, int], tuple[int, int], int]
"""Of a tensor: shape, strides and offset, as as_strided takes them."""


def runs_time_blocked(cell: str, segments: int, steps: int) -> bool:
    """Whether the rows of a program are steps of one segment, for a cell that is affine in its states."""
    return segments <= MOST_SEGMENTS and steps >= LEAST_STEPS and bool(load_programs(cell).assembly.along_time)


def _tensors(begin: int, count: int) -> list[TensorOffset]:
    """So many tensors of a call."""
    return [(tensor, 0) for tensor in range(begin, begin + count)]


class _PassPlan:
    """What both have in common."""

    def __init__(self, signature: Signature) -> None:
        self._of, self._sizes = signature, ScanSizes(signature)
        z = self._sizes
        self._fields: Fields = dict(zip(("data", *z.weight_names), _tensors(0, 1 + signature.weights), strict=True))
        if signature.masked:
            self._fields["mask"] = signature.differentiable, 0
        extras = _tensors(1 + signature.weights, signature.extras)
        states = _tensors(1 + signature.weights + signature.extras, signature.states)
        self._tables: Tables = {"extra": extras, "initial": states or [None] * z.assembly.states}

    def _finish(
        self, program: str, tensors: int, scratch: Arena, stride: int, how: CoreConfig, clip: float = 0.0
    ) -> None:
        signature, z = self._of, self._sizes
        sizes = tuple(signature.shape[:2] if z.batch_major else signature.sizes)
        steps = sizes[1] if z.batch_major else len(sizes)
        padded_rows = sum(2**k for k, matrix in enumerate(z.matrices) if pads_rows(matrix))
        form = ScanParameters(
            signature.cell, program, signature.dtype, z.D, z.H, sizes, z.batch_major, "bias_ih" in z.weight_names,
            z.projection, signature.matmul_dtype, clip, padded_rows,
            clip == 0 and runs_time_blocked(signature.cell, sizes[0], steps), stride,
        )  # fmt: skip
        self.plan = CorePlan(form, how, self._fields, self._tables, tensors, scratch.numbers * z.item)


class ForwardPlan(_PassPlan):
    def __init__(self, signature: Signature, train: bool, how: CoreConfig) -> None:
        super().__init__(signature)
        z, first, program = self._sizes, signature.given, "train" if train else "use"
        a, saved = z.assembly, z.saved(first + len(z.outputs) + len(z.finals))
        self.results = z.results(train)
        """The shapes of outputs, final states, and what is saved."""
        scratch = Arena(SCRATCH, z.item)
        histories = z.histories(_tensors(first, len(z.outputs)), saved.others if train else [])
        if histories[0] is None:  # the core always keeps it
            histories[0] = scratch.take(z.N * z.H)
        self._tables |= {"state": histories, "final_state": _tensors(first + len(z.outputs), a.states)}
        share, stride = saved.share if train else None, z.share_stride
        if share is None and load_programs(signature.cell).share_in_outputs[program]:
            share, stride = histories[0], z.H
        self._fields["share"] = share or scratch.take(z.N * stride)
        if train and saved.tape is not None:
            self._fields["tape"] = saved.tape
        if z.projection:
            self._fields["projected"] = first, 0
        self.unwritten = [((1, end - begin), (1, 1), begin) for begin, end in saved.slab.gaps] if train else []
        """What the core leaves unwritten of what is saved."""
        if train and saved.share is not None:
            columns = a.gates * z.H
            self.unwritten.append(((z.N, stride - columns), (stride, 1), saved.share[1] // z.item + columns))
        self._finish(program, first + len(self.results), scratch, stride, how)


class BackwardPlan(_PassPlan):
    def __init__(
        self,
        signature: Signature,
        arriving: tuple[bool, ...],
        for_data: bool,
        for_state: bool,
        traced: bool,
        overwrite_saved: bool,
        how: CoreConfig,
    ) -> None:
        super().__init__(signature)
        z, fields = self._sizes, self._fields
        a, outputs, H = z.assembly, len(z.outputs), z.H
        saved = z.saved(signature.given + outputs)
        if signature.weighted:
            fields["xi"] = signature.given - 1, 0
        if saved.share is not None:
            fields["share"] = saved.share
        if saved.tape is not None:
            fields["tape"] = saved.tape
        arrived = iter(range(signature.given + outputs + bool(saved.slab.gaps), 1 << 30))
        gradients = [(next(arrived), 0) if came else None for came in arriving]
        self.wanted = slice(
            int(not for_data), signature.differentiable if for_state else signature.differentiable - signature.states
        )
        """The tensors whose gradients are found."""
        at = next(arrived)
        if for_data:
            fields["d_data"] = at, 0
        at += for_data
        fields |= {f"d_{name}": (at + k, 0) for k, name in enumerate(z.weight_names)}
        at += signature.weights
        self._tables |= {
            "state": z.histories(_tensors(signature.given, outputs), saved.others),
            "d_outputs": [gradients[a.outputs.index(j)] if j in a.outputs else None for j in range(a.states)],
            "d_final": gradients[outputs:],
            "d_extra": _tensors(at, signature.extras),
            "d_initial": _tensors(at + signature.extras, signature.states) if for_state else [],
        }
        at += signature.extras + (signature.states if for_state else 0)
        self.recorded = [*z.recorded] if traced else []
        """The shapes of what is recorded, and of what some of it is copied from."""
        scratch = Arena(at + len(self.recorded) if traced else SCRATCH, z.item)
        if overwrite_saved and saved.share is not None:
            fields["d_share"] = saved.share
        else:
            fields["d_share"] = scratch.take(z.N * z.share_stride)
        if a.own:
            fields["d_product"] = scratch.take(z.N * a.own * H)
        d_state = _tensors(at, a.states) if traced else []
        if z.projection:
            fields["projected"] = signature.given, 0
            fields["d_projected"] = (at, 0) if traced else scratch.take(z.N * z.projection)
            if traced:
                d_state[0] = scratch.take(z.N * H)
        self._tables["d_state"] = d_state
        likes = [torch.empty_like, *(padded_like if pads_rows(w) else torch.empty_like for w in z.matrices)]
        likes += [torch.empty_like] * (signature.differentiable - len(likes))
        self.likes = likes[self.wanted]
        """What makes memory for each of them."""
        self.copied = self._recorded_products() if traced else []
        """What is recorded of other gradients: which record, its columns; of which tensor, and which part of it."""
        self.records = len(self.recorded)
        if traced and scratch.gaps:
            self.recorded.append((scratch.numbers,))
        scratch = Arena(SCRATCH, z.item) if traced else scratch
        program, tensors = "trace" if traced else "back", at + len(self.recorded)
        self._finish(program, tensors, scratch, z.share_stride, how, signature.clip)

    def _recorded_products(self) -> list[tuple[int, slice, int, Piece]]:
        z = self._sizes
        a, H = z.assembly, z.H

        def columns(signature: TensorOffset, stride: int, begin: int, count: int) -> tuple[int, Piece]:
            return signature[0], ((z.N, count * H), (stride, 1), signature[1] // z.item + begin * H)

        copied = [(a.states, slice(0, a.gates * H), *columns(self._fields["d_share"], z.share_stride, 0, a.gates))]
        for k, place in enumerate(a.product_places[: a.products]):
            if place < a.gates:
                found = columns(self._fields["d_share"], z.share_stride, place, 1)
            else:
                found = columns(self._fields["d_product"], a.own * H, place - a.gates, 1)
            copied.append((a.states + 1, slice(k * H, (k + 1) * H), *found))
        return copied


forward_pass = functools.lru_cache(maxsize=256)(ForwardPlan)
backward_pass = functools.lru_cache(maxsize=256)(BackwardPlan)
