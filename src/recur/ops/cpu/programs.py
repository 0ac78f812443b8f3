"""Programs of a cell in the format of the C++ core, and the cells that the core can run."""

from __future__ import annotations

import ctypes
import functools
from typing import TypeAlias

import torch
from torch import Tensor

from recur.cells.cell import Cell
from recur.compat import constant_when_compiled
from recur.compiler.assembly import PROGRAMS, Assembly, Code
from recur.compiler.program_text import not_compiled
from recur.ops.cpu import library

EncodedProgram: TypeAlias = "tuple[library.ProgramStruct, ctypes.Array[ctypes.c_double]]"
"""A program, and its constants."""


class LoadedPrograms:
    """The programs of a cell, encoded when first needed."""

    def __init__(self, text: str) -> None:
        a = self.assembly = Assembly.loads(text)
        self.product_places = (ctypes.c_int32 * max(1, a.products))(*a.product_places)
        saves_share = {"use": False, "train": a.reads_share}
        self.share_in_outputs = {
            name: a.gates == 1 and not saved and all(map(_reads_share_first, _variants(a, name)))
            for name, saved in saves_share.items()
        }
        """Whether the input projection may be stored where the output will be, by program."""

    @functools.cached_property
    def encoded(self) -> dict[str, EncodedProgram]:
        return {name: _encode(getattr(self.assembly, name)) for name in PROGRAMS}

    @functools.cached_property
    def along_time(self) -> dict[str, EncodedProgram]:
        return {name: _encode(code) for name, code in self.assembly.along_time.items()}


def _encode(code: Code) -> EncodedProgram:
    core = library.core()
    assert core is not None
    written = {operands[0] for _, operands in code.instructions}
    read = {place for op, operands in code.instructions for place in operands[1:]}
    instructions = (library.InstructionStruct * max(1, len(code.instructions)))()
    for k, (op, operands) in enumerate(code.instructions):
        instructions[k] = library.InstructionStruct(core.operations[op], *operands)
    places = (library.OperandStruct * max(1, len(code.places)))()
    for k, (kind, index) in enumerate(code.places):
        places[k] = library.OperandStruct(core.places[kind], index, k in read, k in written)
    numbers = (ctypes.c_double * max(1, len(code.numbers)))(*code.numbers)
    program = library.ProgramStruct(instructions, len(code.instructions), places, len(code.places), code.temps)
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


@functools.lru_cache(maxsize=256)
def load_programs(text: str) -> LoadedPrograms:
    return LoadedPrograms(text)


def unsupported_reason(cell: Cell, x: Tensor, dtype: torch.dtype, biased: bool) -> str | None:
    """Return why the core cannot run a cell on inputs such as x in a dtype; None if it can."""
    if missing := _missing_core():
        return f"its C++ core is missing: {missing} (recur doctor says more)"
    if x.device.type != "cpu":
        return f"it runs on the CPU, and x is on {x.device}"
    if dtype not in (torch.float32, torch.float64):
        return f"it knows float32 and float64, and x is {str(dtype).removeprefix('torch.')}"
    return not_compiled(cell, x, biased)


@constant_when_compiled
def _missing_core() -> str | None:
    return library.missing_reason()


@constant_when_compiled
def instruction_set() -> int | None:
    """Return the index of the instruction set that the core uses now."""
    core = library.core()
    return None if core is None else core.isa
