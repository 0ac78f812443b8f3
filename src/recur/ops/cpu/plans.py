"""Plans of a scan for the C++ core: the struct of a call, complete except for the addresses of its tensors.

Everything that depends on shapes is computed once per signature. A call is then a list of tensors, whose addresses the
core writes into the struct, because in Python this would take longer than a small scan. All saved values are in one
tensor, because a dozen tensors take longer to create than a small scan. The tensors of a call are in this order:

    forward   given, outputs, final states, saved values
    backward  given, outputs, saved values, incoming gradients, computed gradients, recorded gradients
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

from recur.compiler.programs import Signature
from recur.ops.cpu import library
from recur.ops.cpu.library import load_programs

WORDS = {name: getattr(library.ScanStruct, name).offset // 8 for name, *_ in library.ScanStruct._fields_}
"""The offset of each field of the struct, in words of eight bytes: numbers and pointers are one word each."""
TABLES = ctypes.sizeof(library.ScanStruct) // 8
"""The offset of the arrays of pointers, which follow the struct, in words."""

OWN, SCRATCH = -1, -2
"""Tensor numbers of core.h: the struct itself, and scratch memory of a call."""

TensorOffset: TypeAlias = tuple[int, int]
"""A tensor of a call (or SCRATCH), and an offset in bytes."""


class CoreConfig(NamedTuple):
    """Settings of the core that a plan depends on."""

    threads: int
    isa: int
    parallel: int | None
    """The address of the function that runs work on torch's thread pool."""


def current_config() -> CoreConfig:
    """Return the settings that are in force now."""
    core = library.core()
    assert core is not None
    return CoreConfig(torch.get_num_threads(), core.isa, core.parallel)


class ScanParameters(NamedTuple):
    """The numbers of the struct of a scan, and the program that it runs."""

    cell: str
    program: str
    dtype: torch.dtype
    D: int
    H: int
    sizes: tuple[int, ...]
    """The number of segments that take each step; if batch-major, S and the number of steps."""
    batch_major: bool
    biased: bool
    projection: int = 0
    matmul_dtype: str = ""
    """The dtype of matrix products, if not `dtype`: bfloat16 or int8."""
    clip: float = 0.0
    padded_rows: int = 0
    along_time: bool = False
    share_stride: int = 0
    """The last three fields are explained in core.h."""

    @property
    def numbers(self) -> int:
        """The number format, as an index into `library.NUMBERS`."""
        return library.NUMBERS.index(self.matmul_dtype or str(self.dtype).removeprefix("torch."))


class CorePlan:
    """A call of the core with fixed shapes; only the tensors change from call to call.

    fields   the pointers of the struct, by name; all others are null
    tables   the arrays of pointers, by name; None is null
    tensors  the number of tensors of a call
    scratch  the number of bytes of scratch memory that pointers refer to; the workspace follows it
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
        # The size of the workspace depends on which pointers are null, not on their values.
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
        """Run the call on contiguous tensors."""
        if status := self._run(self._address, 1, self._addresses(*map(_ADDRESS, tensors))):
            self.core.fail(status)

    def call(self, tensors: Sequence[Tensor]) -> Callable[[], int]:
        """Return the C++ part of a run as a function, for benchmarks. The tensors must stay alive."""
        return functools.partial(self._run, self._address, 1, self._addresses(*map(_ADDRESS, tensors)))

    def bound(self, tensors: Sequence[Tensor], scratch: int = 0) -> library.ScanStruct:
        """Return the struct of a call with these tensors and with scratch memory at an address."""
        words = (ctypes.c_int64 * self.prepared.count)()
        addresses = self._addresses(*map(_ADDRESS, tensors))
        self.core.bind(self._address, addresses, scratch, ctypes.addressof(words))
        return library.ScanStruct.from_buffer(words)

    def pack(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the weights in the packed layout of the core, for any number of rows."""
        scan, isa, numbers = self.bound(tensors), self.prepared.isa, self.prepared.numbers
        like, size = tensors[0], self.core.packed_bytes(scan, isa, numbers)
        packed = like.new_empty(size // like.element_size() + 1)
        scan.packed, scan.workspace = packed.data_ptr(), None
        if status := self.core.pack(ctypes.addressof(scan), isa, numbers):
            self.core.fail(status)
        return packed


_ADDRESS = Tensor.data_ptr


ALIGNMENT = 64
"""In bytes: a cache line, and the widest vector register."""


class Arena:
    """Allocator of several arrays in one tensor, each aligned to 64 bytes."""

    def __init__(self, tensor: int, item: int) -> None:
        self._tensor, self._item = tensor, item
        self.numbers = 0
        """The size of the tensor so far."""
        self.gaps: list[tuple[int, int]] = []
        """The padding after each array: begin and end."""

    def take(self, numbers: int) -> TensorOffset:
        begin, whole = self.numbers, ALIGNMENT // self._item
        self.numbers = begin + (numbers + whole - 1) // whole * whole
        self.gaps.append((begin + numbers, self.numbers))
        return self._tensor, begin * self._item


class SavedLayout(NamedTuple):
    """Layout of the tensor of saved values."""

    slab: Arena
    share: TensorOffset | None
    """Input projections, or the values saved in their memory."""
    tape: TensorOffset | None
    """Other saved values."""
    others: list[TensorOffset]
    """States of all steps that are not outputs; with weight_hr, also the first state before the projection."""


class ScanSizes:
    """Sizes of a scan, and shapes of its results. Sizes may be symbolic in a compiled graph."""

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
        # Rows whose distance is a multiple of 2 KiB map to the same cache sets and evict each other: pad them.
        self.share_stride = columns + (ALIGNMENT // self.item if columns * self.item % 2048 == 0 else 0)
        matrices = [(columns, self.D), (a.products * self.H, (P or self.H) // a.heads)]
        self.matrices = matrices if a.products else matrices[:1]
        """The shapes of U and W."""
        widths = [P or self.H, *[self.H] * (a.states - 1)]
        self.outputs: list[Sequence[int]] = [(*signature.shape[:-1], widths[j]) for j in a.outputs]
        self.finals: list[Sequence[int]] = [(self.S, width) for width in widths]
        self.recorded: list[Sequence[int]] = [(self.N, width) for width in (*widths, columns, a.products * self.H)]
        """Shapes of what a trace records: gradients of the states, the input projections, the recurrent projections."""

    def results(self, train: bool) -> list[Sequence[int]]:
        """Return the shapes of outputs, final states and, if anything is saved, the tensor of saved values."""
        saved = self.saved(0)
        return [*self.outputs, *self.finals, *[(saved.slab.numbers,)] * (train and bool(saved.slab.gaps))]

    def saved(self, tensor: int) -> SavedLayout:
        """Return the layout of saved values in a tensor of a call."""
        a, slab = self.assembly, Arena(tensor, self.item)
        share = slab.take(self.N * self.share_stride) if a.reads_share else None
        tape = slab.take(self.N * a.saved * self.H) if a.saved else None
        kept = a.states - (0 if self.projection else len(a.outputs))
        return SavedLayout(slab, share, tape, [slab.take(self.N * self.H) for _ in range(kept)])

    def histories(
        self, outputs: Sequence[TensorOffset | None], others: Sequence[TensorOffset]
    ) -> list[TensorOffset | None]:
        """Return where every state of all steps is stored; None for a state that is not kept."""
        rest, given = iter(others), [] if self.projection else self.assembly.outputs
        return [outputs[given.index(j)] if j in given else next(rest, None) for j in range(self.assembly.states)]


def pads_rows(shape: Sequence[int]) -> bool:
    """Return True if padding the rows of a matrix to a multiple of 32 columns, the widest panel, costs little."""
    return shape[-1] >= 256 and shape[-1] % 32 != 0


def padded_like(weight: Tensor) -> Tensor:
    """Return memory for the gradient of a weight. It has room for padded rows: the packed weight is there at first."""
    rows, columns = weight.shape
    return weight.new_empty(rows * (columns + -columns % 32))[: rows * columns].view(rows, columns)


MOST_SEGMENTS, LEAST_STEPS = 8, 16
"""A time-blocked program runs at most so many segments of at least so many steps. More segments fill the rows of every
step. Measured: with 4 to 16 segments both take the same time on one thread; with more threads than segments, only the
time-blocked program has work for all threads."""

Fields = dict[str, TensorOffset]
Tables = dict[str, Sequence[TensorOffset | None]]
Piece = tuple[tuple[int, int], tuple[int, int], int]
"""Arguments of as_strided: shape, strides and offset."""


def runs_time_blocked(cell: str, segments: int, steps: int) -> bool:
    """Return True if a scan runs the time-blocked program of its cell, which has one if it is affine in its states."""
    return segments <= MOST_SEGMENTS and steps >= LEAST_STEPS and bool(load_programs(cell).assembly.along_time)


def _tensors(begin: int, count: int) -> list[TensorOffset]:
    """Return the offsets of `count` tensors of a call."""
    return [(tensor, 0) for tensor in range(begin, begin + count)]


class _PassPlan:
    """The part of a plan that both passes share."""

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
    """Plan of a forward pass."""

    def __init__(self, signature: Signature, train: bool, how: CoreConfig) -> None:
        super().__init__(signature)
        z, first, program = self._sizes, signature.given, "train" if train else "use"
        a, saved = z.assembly, z.saved(first + len(z.outputs) + len(z.finals))
        self.results = z.results(train)
        """The shapes of outputs, final states and saved values."""
        scratch = Arena(SCRATCH, z.item)
        histories = z.histories(_tensors(first, len(z.outputs)), saved.others if train else [])
        if histories[0] is None:  # the core always writes the first state
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
        """The parts of the saved values that the core does not write."""
        if train and saved.share is not None:
            columns = a.gates * z.H
            self.unwritten.append(((z.N, stride - columns), (stride, 1), saved.share[1] // z.item + columns))
        self._finish(program, first + len(self.results), scratch, stride, how)


class BackwardPlan(_PassPlan):
    """Plan of a backward pass for one set of requested gradients."""

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
        """The given tensors whose gradients are computed."""
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
        """The shapes of what a trace records, and of the memory that parts of it are copied from."""
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
        """The function that allocates each gradient."""
        self.copied = self._recorded_products() if traced else []
        """Parts of the record that are copied from gradients: (record, columns, tensor, part of the tensor)."""
        self.records = len(self.recorded)
        if traced and scratch.gaps:
            self.recorded.append((scratch.numbers,))
        scratch = Arena(SCRATCH, z.item) if traced else scratch
        program, tensors = "trace" if traced else "back", at + len(self.recorded)
        self._finish(program, tensors, scratch, z.share_stride, how, signature.clip)

    def _recorded_products(self) -> list[tuple[int, slice, int, Piece]]:
        z = self._sizes
        a, H = z.assembly, z.H

        def columns(where: TensorOffset, stride: int, begin: int, count: int) -> tuple[int, Piece]:
            return where[0], ((z.N, count * H), (stride, 1), where[1] // z.item + begin * H)

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


Tensors = list[Tensor]


def forward(signature: Signature, given: Sequence[Tensor], train: bool) -> Tensors:
    """Return outputs, final states and, for training, the tensor of saved values."""
    prepared = forward_pass(signature, train, current_config())
    empty = given[0].new_empty
    results = [empty(*shape) for shape in prepared.results]
    prepared.plan.run([*map(_contiguous, given), *results])
    return results


_contiguous = Tensor.contiguous


def whole(signature: Signature, results: Tensors) -> Tensors:
    """Zero the padding between saved values: an operator must not return uninitialised memory."""
    for piece in forward_pass(signature, True, current_config()).unwritten:
        results[-1].as_strided(*piece).zero_()
    return results


def shapes(signature: Signature, data: Tensor, train: bool) -> Tensors:
    """Return empty tensors with the shapes of the results of a forward pass."""
    return [data.new_empty(shape) for shape in ScanSizes(signature).results(train)]


def gradient_shapes(signature: Signature, given: Sequence[Tensor], traced: bool) -> Tensors:
    """Return empty tensors with the shapes of all gradients and, if traced, of what a trace records."""
    found = [part.new_empty(part.shape) for part in given[: signature.differentiable]]
    return found + [given[0].new_empty(shape) for shape in (ScanSizes(signature).recorded if traced else [])]


def backward(
    signature: Signature,
    kept: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    for_data: bool,
    for_state: bool,
    traced: bool,
    overwrite_saved: bool = False,
) -> tuple[list[Tensor | None], Tensors]:
    """Return the gradients (None where not requested) and, if traced, the full gradients of all states, U x and W h.

    kept             the given tensors, the outputs, and the saved values
    gradients        the gradients of outputs and final states
    overwrite_saved  reuse the memory of saved values: no further backward pass will run over this graph
    """
    arriving = tuple([gradient is not None for gradient in gradients])
    prepared = backward_pass(signature, arriving, for_data, for_state, traced, overwrite_saved, current_config())
    empty = kept[0].new_empty
    tensors = [*map(_contiguous, kept), *[g.contiguous() for g in gradients if g is not None]]
    found = [like(tensor) for like, tensor in zip(prepared.likes, tensors[prepared.wanted], strict=True)]
    recorded = [empty(*shape) for shape in prepared.recorded]
    tensors += [*found, *recorded]
    prepared.plan.run(tensors)
    for k, columns, tensor, piece in prepared.copied:
        recorded[k][:, columns].copy_(tensors[tensor].as_strided(*piece))
    every: list[Tensor | None] = [None] * signature.given
    every[prepared.wanted] = found
    return every, recorded[: prepared.records]
