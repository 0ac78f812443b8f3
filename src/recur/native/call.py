"""One call of the C++ core: a cell's programs as it reads them, and the struct of a scan."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recur.native import library
from recur.program.assembly import PROGRAMS, Assembly, Code

WORDS = {name: getattr(library.Scan, name).offset // 8 for name, *_ in library.Scan._fields_}
"""Where each field of the struct stands, in words of eight bytes: numbers and pointers are one word each."""
TABLES = ctypes.sizeof(library.Scan) // 8
"""Behind the struct there is room for the arrays of pointers that it points to."""


class Loaded:
    """A cell's programs as the core reads them."""

    def __init__(self, text: str) -> None:
        a = self.assembly = Assembly.loads(text)
        self.product_places = (ctypes.c_int32 * max(1, a.products))(*a.product_places)
        sides = ("ih", "hh") if a.products else ("ih",)
        plain = tuple(f"weight_{side}" for side in sides)
        biased = *plain, *(f"bias_{side}" for side in sides)
        forms = [plain, biased, *([(*plain, "weight_hr"), (*biased, "weight_hr")] if a.products else [])]
        self.weight_names = {len(names): names for names in forms}
        """torch's names, in the order in which the operator takes the weights, by how many there are."""
        self.weight_places = {
            count: ([WORDS[name] for name in names], [WORDS[f"d_{name}"] for name in names])
            for count, names in self.weight_names.items()
        }
        """Where the struct has the pointers to them, and to their gradients."""
        self.encoded = {name: _encoded(getattr(a, name)) for name in PROGRAMS}
        self.along_time = {name: _encoded(code) for name, code in a.along_time.items()}
        saves_share = {"use": False, "train": a.reads_share}
        self.share_in_outputs = {
            name: a.gates == 1 and not saved and all(map(_reads_share_first, _variants(a, name)))
            for name, saved in saves_share.items()
        }
        """Whether U x + b of a step may lie where its output will."""

    def biased(self, weights: int) -> bool:
        """Whether so many weights hold biases."""
        return "bias_ih" in self.weight_names[weights]

    def projection(self, weights: Sequence[Tensor]) -> int:
        """The width of the first state where these weights make it another one, or 0."""
        return weights[-1].shape[0] if "weight_hr" in self.weight_names[len(weights)] else 0


def _encoded(code: Code) -> tuple[library.Program, ctypes.Array[ctypes.c_double]]:
    core = _core()
    written = {operands[0] for _, operands in code.instructions}
    read = {place for op, operands in code.instructions for place in operands[1:]}
    instructions = (library.Instruction * max(1, len(code.instructions)))()
    for k, (op, operands) in enumerate(code.instructions):
        instructions[k] = library.Instruction(core.operations[op], *operands)
    places = (library.Place * max(1, len(code.places)))()
    for k, (kind, index) in enumerate(code.places):
        places[k] = library.Place(core.places[kind], index, k in read, k in written)
    numbers = (ctypes.c_double * max(1, len(code.numbers)))(*code.numbers)
    program = library.Program(instructions, len(code.instructions), places, len(code.places), code.temps)
    return program, numbers


def _core() -> library.Core:
    core = library.core()
    assert core is not None
    return core


def _variants(a: Assembly, name: str) -> list[Code]:
    """A program on segments at one step, and, if there is one, on steps of one segment."""
    return [getattr(a, name), *(code for other, code in a.along_time.items() if other == name)]


def _reads_share_first(code: Code) -> bool:
    """Whether nothing reads a gate's share any more once the first state is written."""
    kinds = [tuple(place) for place in code.places]
    reads = [k for k, (_, operands) in enumerate(code.instructions) for p in operands[1:] if kinds[p][0] == "share"]
    writes = [k for k, (_, operands) in enumerate(code.instructions) if kinds[operands[0]] == ("after", 0)]
    return max(reads, default=0) <= min(writes)


@functools.lru_cache(maxsize=256)
def load(text: str) -> Loaded:
    return Loaded(text)


class Form(NamedTuple):
    """What two calls must have in common to differ in their pointers only."""

    cell: str
    program: str
    double: bool
    N: int
    D: int
    H: int
    sizes: tuple[int, ...]
    """How many segments take each step; batch-major, S and the number of steps."""
    batch_major: bool
    biased: bool
    masked: bool = False
    packed: bool = False
    """Whether the weights were packed by an earlier call."""
    clip: float = 0.0
    padded_rows: int = 0
    along_time: bool = False
    """As in core.h."""
    projection: int = 0
    products: str = ""
    """What products read, if not the numbers as they are: bfloat16 or int8."""

    @property
    def numbers(self) -> int:
        """One of core.h's."""
        return library.NUMBERS.index(self.products or ("float64" if self.double else "float32"))


class Plan(NamedTuple):
    """What calls of one form share."""

    words: array[int]
    """The struct without its pointers, and room for tables of them."""
    size: int
    """Bytes of workspace."""
    numbers: int
    cell: Loaded
    alive: object
    """What the struct points into beside it."""


@functools.lru_cache(maxsize=256)
def _plan(form: Form, threads: int, isa: int) -> Plan:
    steps = (form.sizes[0],) * form.sizes[1] if form.batch_major else form.sizes
    cell, sizes = load(form.cell), (ctypes.c_int64 * len(steps))(*steps)
    program, numbers = (cell.along_time if form.along_time else cell.encoded)[form.program]
    s = library.Scan(program=program, threads=threads, saved=cell.assembly.saved)
    for count in ("gates", "products", "states", "extras", "own", "adds_to_first"):
        setattr(s, count, int(getattr(cell.assembly, count)))
    for name in ("N", "D", "H", "batch_major", "biased", "clip", "padded_rows", "projection", "along_time"):
        setattr(s, name, getattr(form, name))
    s.S, s.steps, s.sizes = form.sizes[0], len(sizes), ctypes.addressof(sizes)
    s.constant, s.constants = ctypes.addressof(numbers), len(numbers)
    s.product_place = ctypes.addressof(cell.product_places)
    # How much memory it takes depends on which pointers are given, not on where they point.
    given = {"mask": form.masked, "packed": form.packed, "d_weight_ih": True, "d_weight_hh": True}
    asked = library.Scan.from_buffer_copy(s)
    for name, there in given.items():
        setattr(asked, name, 1 if there else None)
    size = _core().workspace_bytes(asked, isa, form.numbers, int(form.program in ("back", "trace")))
    tables = 8 * (s.states + s.extras + 1)
    words = array("Q", bytes(s) + bytes(8 * tables))
    return Plan(words, size, form.numbers, cell, sizes)


class NativeCall:
    """The struct of one scan, and all that must live as long as it does."""

    def __init__(
        self, form: Form, data: Tensor, weights: Sequence[Tensor], mask: Tensor | None, isa: int | None = None
    ) -> None:
        self.core = core = _core()
        self.isa = core.isa if isa is None else isa
        self.plan = plan = _plan(form, torch.get_num_threads(), self.isa)
        self.size, self.numbers = plan.size, plan.numbers
        self._like, self._used = data, TABLES
        self.words = words = plan.words[:]
        self.address = words.buffer_info()[0]
        words[_PARALLEL], words[_DATA] = core.parallel or 0, data.data_ptr()
        places, self.gradients = plan.cell.weight_places[len(weights)]
        for place, weight in zip(places, weights, strict=True):
            words[place] = weight.data_ptr()
        if mask is not None:
            words[_MASK] = mask.data_ptr()

    @functools.cached_property
    def scan(self) -> library.Scan:
        """The struct itself, field by field."""
        return library.Scan.from_buffer(self.words)

    def put(self, **fields: Tensor | int | None) -> None:
        """Numbers, and pointers to tensors; None is null."""
        for name, value in fields.items():
            self.words[WORDS[name]] = value.data_ptr() if isinstance(value, Tensor) else value or 0

    def point(self, **arrays: Sequence[Tensor | None]) -> memoryview[int]:
        """Have these fields point to arrays of pointers to these tensors, which all lie in the one that is returned.

        A field without tensors becomes null.
        """
        words, begin = self.words, self._used
        at = begin
        for name, tensors in arrays.items():
            words[WORDS[name]] = self.address + 8 * at if tensors else 0
            for tensor in tensors:
                words[at] = 0 if tensor is None else tensor.data_ptr()
                at += 1
        self._used = at
        return memoryview(words)[begin:at]

    def new_memory(self, size: int) -> Tensor:
        return self._like.new_empty(size // self._like.element_size() + 1)

    def run(self, backward: bool) -> Tensor:
        """Do it. Returns the workspace."""
        workspace = self.new_memory(self.size)
        self.words[_WORKSPACE] = workspace.data_ptr()
        run = self.core.backward if backward else self.core.forward
        if status := run(self.address, self.isa, self.numbers):
            self.core.fail(status)
        return workspace

    def pack(self) -> Tensor:
        """The weights as the core reads them, in memory of their own, for any number of rows."""
        packed = self.new_memory(self.core.packed_bytes(self.scan, self.isa, self.numbers))
        self.put(packed=packed, workspace=None)
        if status := self.core.pack(self.address, self.isa, self.numbers):
            self.core.fail(status)
        return packed


_PARALLEL, _DATA, _MASK, _WORKSPACE = (WORDS[name] for name in ("parallel", "data", "mask", "workspace"))
