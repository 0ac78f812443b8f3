"""Calls of the C++ core over grids, field by field, as the driver under sanitizers reads them."""

from __future__ import annotations

import ctypes

from recur.ops.cpu import grid, library
from recur.ops.cpu.grid import GridCall
from tests.ops.cpu.recorded import READ, WRITTEN, Field


def fields_of(call: GridCall, backward: bool) -> dict[str, Field]:
    g, real = call.grid, 8 if call.double else 4
    found: dict[str, Field] = {}

    def number(name: str, value: int) -> None:
        found[name] = Field.of_number(value)

    def array(name: str, pointer: int | None, count: int, kind: int = READ, size: int = real) -> None:
        if pointer:
            found[name] = Field.of_memory(pointer, count * size, kind)

    for name, kind in library.GridStruct._fields_:
        if kind is ctypes.c_int64:
            number(name, getattr(g, name))
    for name, value in (("backward", backward), ("numbers", call.double), ("isa", call.isa)):
        number(name, value)
    for name in ("length", "count", "temps"):
        number(name, getattr(g.program, name))
    array(
        "code",
        ctypes.addressof(g.program.code.contents),
        g.program.length,
        size=ctypes.sizeof(library.InstructionStruct),
    )
    array(
        "places",
        ctypes.addressof(g.program.places.contents),
        g.program.count,
        size=ctypes.sizeof(library.OperandStruct),
    )
    points, weights = g.B * g.R * g.C, g.Q * g.gates * g.H * (2 * g.H + g.D + 1)
    array("turns", g.turns, g.Q, size=8)
    array("constant", g.constant, g.constants, size=8)
    array("x", g.x, points * g.D)
    array("M", g.M, weights)
    array("tape", g.tape, grid._tape_numbers(call.assembly, call.x, call.M), READ if backward else WRITTEN)
    if not backward:
        array("h", g.h, points * g.Q * g.H, WRITTEN)
        return found
    array("d_h", g.d_h, points * g.Q * g.H)
    array("d_x", g.d_x, g.Q * points * g.D, WRITTEN)
    array("d_M", g.d_M, weights, WRITTEN)
    return found
