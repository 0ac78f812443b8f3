"""Python interface of the C++ core: structs, functions, the thread pool, and programs in the format of the core.

After `os.fork` a child has the bookkeeping of OpenMP's thread pool but none of its threads. The first parallel call,
also torch's own, would wait for ever. So a child continues with one thread, as the workers of PyTorch's DataLoader do.
Processes started by `spawn` or `forkserver` have their own pool.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_void_p
from typing import NoReturn, TypeAlias

import torch
from torch import Tensor

from recur.cells.cell import Cell
from recur.compat import constant_when_compiled, library_file
from recur.compiler.assembly import PROGRAMS, Assembly, Code, load_assembly
from recur.compiler.programs import not_compiled
from recur.errors import BackendError, unknown
from recur.utils import core_library

ISAS = ("portable", "avx2", "avx512", "avx512bf16")
"""Instruction sets; each includes the previous ones. The last has instructions for bfloat16 and 8-bit products."""

NUMBERS = ("float32", "float64", "bfloat16", "int8")
"""Number formats of matrix products: as stored; float32 rounded to bfloat16; float32 times 8-bit weights."""

OUT_OF_MEMORY = 1
"""Status of a call that ran out of memory; 0 is success, other values are failures."""


class InstructionStruct(Structure):
    _fields_ = [(name, c_int32) for name in ("op", "to", "a", "b", "c")]


class OperandStruct(Structure):
    _fields_ = [(name, c_int32) for name in ("kind", "index", "read", "written")]


class ProgramStruct(Structure):
    _fields_ = [
        ("code", POINTER(InstructionStruct)),
        ("length", c_int64),
        ("places", POINTER(OperandStruct)),
        ("count", c_int64),
        ("temps", c_int64),
    ]


class ScanStruct(Structure):
    """As in core.h, field by field."""

    _fields_ = [
        *((name, c_int64) for name in ("D", "H", "gates", "products", "states", "extras", "constants", "saved", "own")),
        *((name, c_int64) for name in ("heads", "projection")),
        *((name, c_int64) for name in ("steps", "N", "S")),
        ("sizes", c_void_p),
        ("batch_major", c_int64),
        ("biased", c_int64),
        ("along_time", c_int64),
        ("threads", c_int64),
        *((name, c_void_p) for name in ("parallel", "workspace", "packed")),
        *((name, c_void_p) for name in ("data", "weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh")),
        *((name, c_void_p) for name in ("extra", "constant", "initial", "mask", "xi")),
        ("clip", c_double),
        ("share", c_void_p),
        ("share_stride", c_int64),
        *((name, c_void_p) for name in ("tape", "state", "projected", "final_state")),
        ("program", ProgramStruct),
        *(
            (name, c_void_p)
            for name in ("d_outputs", "d_final", "d_share", "d_product", "d_projected", "product_place")
        ),
        ("adds_to_first", c_int64),
        *((name, c_void_p) for name in ("d_data", "d_weight_ih", "d_weight_hh", "d_weight_hr")),
        ("padded_rows", c_int64),
        *((name, c_void_p) for name in ("d_bias_ih", "d_bias_hh")),
        *((name, c_void_p) for name in ("d_extra", "d_initial", "d_state")),
    ]


class GridStruct(Structure):
    """As in core.h, field by field."""

    _fields_ = [
        *((name, c_int64) for name in ("Q", "B", "R", "C", "D", "H", "gates", "states", "constants")),
        *((name, c_int64) for name in ("saved", "reads_share", "rows", "threads")),
        *((name, c_void_p) for name in ("parallel", "workspace", "turns", "x", "M", "constant")),
        ("program", ProgramStruct),
        *((name, c_void_p) for name in ("h", "tape", "d_h", "d_x", "d_M")),
    ]


class StagedValueStruct(Structure):
    """As in core.h, field by field."""

    _fields_ = [
        *((name, c_int64) for name in ("kind", "width", "room", "stride")),
        *((name, c_void_p) for name in ("base", "first")),
    ]


class StagedMatrixStruct(Structure):
    """As in core.h, field by field."""

    _fields_ = [("base", c_void_p), *((name, c_int64) for name in ("rows", "columns", "stride", "transposed"))]


class StageStruct(Structure):
    """As in core.h, field by field."""

    _fields_ = [
        *((name, c_int64) for name in ("kind", "to", "a", "onto", "matrix", "groups", "width")),
        ("program", ProgramStruct),
        ("constant", c_void_p),
        ("constants", c_int64),
    ]


class StagedStruct(Structure):
    """As in core.h, field by field."""

    _fields_ = [
        *((name, c_int64) for name in ("steps", "N", "S")),
        ("sizes", c_void_p),
        *((name, c_int64) for name in ("backward", "threads")),
        ("parallel", c_void_p),
        ("values", POINTER(StagedValueStruct)),
        ("value_count", c_int64),
        ("stages", POINTER(StageStruct)),
        ("stage_count", c_int64),
        ("matrices", POINTER(StagedMatrixStruct)),
        ("matrix_count", c_int64),
        ("states", c_int64),
        *((name, c_void_p) for name in ("widths", "carried", "next", "d_outputs", "xi")),
        ("clip", c_double),
    ]


class PreparedStruct(Structure):
    """As in core.h, field by field."""

    _fields_ = [
        ("words", c_void_p),
        ("count", c_int64),
        ("bindings", c_void_p),
        *((name, c_int64) for name in ("bound", "scratch", "isa", "numbers", "backward")),
    ]


class Core:
    """The loaded library, and the instruction set that it is used with."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name in ("recur_operations", "recur_places", "recur_error"):
            getattr(library, name).restype = c_char_p
        self._error = library.recur_error
        scan, number = POINTER(ScanStruct), POINTER(c_int64)
        self.run, self.bind, self.pack = library.recur_run, library.recur_bind, library.recur_pack
        self.run.argtypes, self.bind.argtypes = [c_void_p, c_int64, c_void_p], [c_void_p] * 4
        self.bind.restype = None
        self.pack.argtypes = [c_void_p, c_int, c_int]
        self._workspace_bytes, self._packed_bytes = library.recur_workspace_bytes, library.recur_packed_bytes
        self._workspace_bytes.argtypes = [scan, c_int, c_int, c_int, number]
        self._packed_bytes.argtypes = [scan, c_int, c_int, number]
        self.grid_forward, self.grid_backward = library.recur_grid_forward, library.recur_grid_backward
        self.grid_forward.argtypes = self.grid_backward.argtypes = [POINTER(GridStruct), c_int, c_int]
        self.staged = library.recur_staged
        self.staged.argtypes = [POINTER(StagedStruct), c_int, c_int]
        self._grid_workspace_bytes = library.recur_grid_workspace_bytes
        self._grid_workspace_bytes.argtypes = [POINTER(GridStruct), c_int, c_int, c_int, number]
        self.operations = {name: k for k, name in enumerate(library.recur_operations().decode().split())}
        self.places = {name: k for k, name in enumerate(library.recur_places().decode().split())}
        self.best_isa = int(library.recur_best_isa())
        self.isa = self.best_isa
        asked = os.environ.get("RECUR_ISA")
        if asked:
            self.use(asked)

    def use(self, isa: str) -> None:
        """Use this instruction set from now on. Raise if the machine does not have it."""
        if isa not in ISAS:
            raise BackendError(unknown("instruction set", isa, ISAS))
        if ISAS.index(isa) > self.best_isa:
            raise BackendError(f"this machine has no {isa}; its best is {ISAS[self.best_isa]}")
        self.isa = ISAS.index(isa)

    def fail(self, status: int) -> NoReturn:
        """Raise the error of a call of this thread that returned a status other than 0."""
        if status == OUT_OF_MEMORY:
            raise MemoryError("the native backend ran out of memory")
        raise BackendError(f"the native backend failed: {self._error().decode()}")

    def workspace_bytes(self, scan: ScanStruct, isa: int, numbers: int, backward: int) -> int:
        return self._size(self._workspace_bytes, scan, isa, numbers, backward)

    def packed_bytes(self, scan: ScanStruct, isa: int, numbers: int) -> int:
        return self._size(self._packed_bytes, scan, isa, numbers)

    def grid_workspace_bytes(self, grid: GridStruct, isa: int, double: int, backward: int) -> int:
        return self._size(self._grid_workspace_bytes, grid, isa, double, backward)

    def _size(self, query: Callable[..., int], of: Structure, *options: int) -> int:
        size = c_int64()
        status = query(ctypes.byref(of), *options, ctypes.byref(size))
        return size.value if not status else self.fail(status)

    @functools.cached_property
    def parallel(self) -> int | None:
        """GOMP_parallel of the OpenMP that torch itself runs on: two pools would compete for the same cores."""
        return _openmp_of_torch()


def _openmp_of_torch() -> int | None:
    """Return the entry that torch's own calls of OpenMP reach, found as the dynamic linker finds it for them.

    First among what is loaded for all, then among the libraries that torch's module depends on. Other packages bring
    an OpenMP of their own, scikit-learn for one, and those are in neither.
    """
    for name in (None, library_file()):
        try:
            entry = ctypes.CDLL(name).GOMP_parallel
        except (OSError, TypeError, AttributeError):  # no such library, or no OpenMP in it
            continue
        return ctypes.cast(entry, c_void_p).value
    return None


@functools.cache
def _load() -> Core | str:
    library = core_library.load()
    return library if isinstance(library, str) else Core(library)


def core() -> Core | None:
    found = _load()
    return None if isinstance(found, str) else found


@constant_when_compiled
def missing_reason() -> str | None:
    """Return why there is no core; None if there is one."""
    found = _load()
    return found if isinstance(found, str) else None


def _use_one_thread() -> None:
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_use_one_thread)


EncodedProgram: TypeAlias = "tuple[ProgramStruct, ctypes.Array[ctypes.c_double]]"
"""A program, and its constants."""


class LoadedPrograms:
    """The programs of a cell, encoded when first needed."""

    def __init__(self, text: str) -> None:
        a = self.assembly = load_assembly(text)
        self.product_places = (ctypes.c_int32 * max(1, a.products))(*a.product_places)
        saves_share = {"use": False, "train": a.reads_share}
        self.share_in_outputs = {
            name: a.gates == 1 and not saved and all(map(_reads_share_first, _variants(a, name)))
            for name, saved in saves_share.items()
        }
        """Whether the input projection may be stored where the output will be, by program."""

    @functools.cached_property
    def encoded(self) -> dict[str, EncodedProgram]:
        return {name: encode(getattr(self.assembly, name)) for name in PROGRAMS}

    @functools.cached_property
    def along_time(self) -> dict[str, EncodedProgram]:
        return {name: encode(code) for name, code in self.assembly.along_time.items()}


def encode(code: Code) -> EncodedProgram:
    """Return a program in the format of the core."""
    library = core()
    assert library is not None
    written = {operands[0] for _, operands in code.instructions}
    read = {place for op, operands in code.instructions for place in operands[1:]}
    instructions = (InstructionStruct * max(1, len(code.instructions)))()
    for k, (op, operands) in enumerate(code.instructions):
        instructions[k] = InstructionStruct(library.operations[op], *operands)
    places = (OperandStruct * max(1, len(code.places)))()
    for k, (kind, index) in enumerate(code.places):
        places[k] = OperandStruct(library.places[kind], index, k in read, k in written)
    numbers = (ctypes.c_double * max(1, len(code.numbers)))(*code.numbers)
    program = ProgramStruct(instructions, len(code.instructions), places, len(code.places), code.temps)
    return program, numbers


def _variants(a: Assembly, name: str) -> list[Code]:
    """Return a program and, if there is one, its time-blocked variant."""
    return [getattr(a, name), *(code for other, code in a.along_time.items() if other == name)]


def _reads_share_first(code: Code) -> bool:
    """Return True if no input projection is read after the first state is written."""
    kinds = [tuple(place) for place in code.places]
    reads = [k for k, (_, operands) in enumerate(code.instructions) for p in operands[1:] if kinds[p][0] == "share"]
    writes = [k for k, (_, operands) in enumerate(code.instructions) if kinds[operands[0]] == ("after", 0)]
    return max(reads, default=0) <= min(writes)


load_programs = functools.lru_cache(maxsize=256)(LoadedPrograms)


def unsupported_reason(cell: Cell, x: Tensor, dtype: torch.dtype, biased: bool, per_sample: bool = False) -> str | None:
    """Return why the core cannot run a cell on inputs such as x in a dtype; None if it can."""
    if missing := missing_reason():
        return f"its C++ core is missing: {missing} (recur doctor says more)"
    if x.device.type != "cpu":
        return f"it runs on the CPU, and x is on {x.device}"
    if dtype not in (torch.float32, torch.float64):
        return f"it knows float32 and float64, and x is {str(dtype).removeprefix('torch.')}"
    return not_compiled(cell, x, biased, per_sample)


@constant_when_compiled
def instruction_set() -> int | None:
    """Return the index of the instruction set that the core uses now."""
    found = core()
    return None if found is None else found.isa
