"""A cell's programs as the C++ core reads them."""

from __future__ import annotations

import ctypes
import functools
from typing import TypeAlias

from recur.compiler.assembly import PROGRAMS, Assembly, Code
from recur.ops.cpu import library

Encoded: TypeAlias = "tuple[library.Program, ctypes.Array[ctypes.c_double]]"
"""A program, and the numbers it names."""


class Loaded:
    """A cell's programs as the core reads them."""

    def __init__(self, text: str) -> None:
        a = self.assembly = Assembly.loads(text)
        self.product_places = (ctypes.c_int32 * max(1, a.products))(*a.product_places)
        saves_share = {"use": False, "train": a.reads_share}
        self.share_in_outputs = {
            name: a.gates == 1 and not saved and all(map(_reads_share_first, _variants(a, name)))
            for name, saved in saves_share.items()
        }
        """Whether U x + b of a step may lie where its output will."""

    @functools.cached_property
    def encoded(self) -> dict[str, Encoded]:
        return {name: _encoded(getattr(self.assembly, name)) for name in PROGRAMS}

    @functools.cached_property
    def along_time(self) -> dict[str, Encoded]:
        return {name: _encoded(code) for name, code in self.assembly.along_time.items()}


def _encoded(code: Code) -> Encoded:
    core = library.core()
    assert core is not None
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
