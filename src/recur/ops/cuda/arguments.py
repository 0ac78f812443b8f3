"""The kernels' arguments as Python sees them: kernels/arguments.cu, field by field."""

from __future__ import annotations

import ctypes
import functools
import operator
import struct
from collections.abc import Mapping, Sequence
from ctypes import Structure, c_int, c_uint64

from torch import Tensor

from recur.compiler.assembly import Assembly

Fields = tuple[tuple[str], tuple[str, ...]]

FORWARD: Fields = (
    ("steps S H step rows reversed",),
    ("offset length share tape", "state* final_state* initial*", "bias input_bias", "extra+", "mask W exchange arrived",
     "carry*", "product"),
)  # fmt: skip
BACKWARD: Fields = (
    ("steps S H step rows later reversed",),
    ("offset length share tape", "state* initial*", "extra+", "mask W input_bias", "d_outputs* d_final*",
     "xi d_share d_own", "d_state*", "sums", "carry*", "exchange arrived product"),
)  # fmt: skip
STREAM: Fields = (
    ("n slots D H x_pitch out_pitch",),
    ("index x U W bias_ih bias_hh", "extra+", "v parity tickets", "state*", "out"),
)  # fmt: skip
LAID_OUT: Fields = (("H inner width transposed words",), ("W", "laid zeros"))
SUMMED: Fields = (("H S N splits",), ("d_share d_own sums partial tickets d_bias_ih d_bias_hh", "d_extra+"))
"""Whole numbers, then pointers: with * one for each state, with + for each weight of the cell's own, and one more."""


class Form:
    """Where everything stands, for a cell with so many states and weights of its own."""

    def __init__(self, fields: Fields, states: int, extras: int) -> None:
        (names,), pointers = fields
        numbers, self.pointers, count = names.split(), dict[str, int](), 0
        for name in " ".join(pointers).split():
            self.pointers[name.rstrip("*+")] = count
            count += states if name.endswith("*") else extras + 1 if name.endswith("+") else 1
        self.count = count
        made = [*((name, c_int) for name in numbers), ("pointers", c_uint64 * count)]
        self.struct: type[Structure] = type("Arguments", (Structure,), {"_fields_": made})


form = functools.cache(Form)


class Arguments:
    """A struct to be filled; tensors whose addresses it has must outlive its launch."""

    def __init__(self, a: Assembly, which: bool | Fields, **numbers: int) -> None:
        """`which`: those of a pass, whether back; or of another kernel."""
        fields = which if isinstance(which, tuple) else BACKWARD if which else FORWARD
        self._form = form(fields, a.states, a.extras)
        self.struct = self._form.struct(**numbers)
        self._pointers: ctypes.Array[c_uint64] = self.struct.pointers

    def put(self, **given: Tensor | Sequence[Tensor | None] | None) -> Arguments:
        """Addresses; None is null."""
        pointers, places = self._pointers, self._form.pointers
        for name, value in given.items():
            at = places[name]
            if value is None:
                pointers[at] = 0
            elif isinstance(value, Tensor):
                pointers[at] = value.data_ptr()
            else:
                for k, part in enumerate(value):
                    pointers[at + k] = 0 if part is None else part.data_ptr()
        return self

    def number(self, name: str, value: int) -> None:
        setattr(self.struct, name, value)

    def at(self, name: str) -> int:
        """Where a number or a pointer stands, in bytes."""
        if name in self._form.pointers:
            return int(type(self.struct).pointers.offset) + 8 * self._form.pointers[name]
        return int(getattr(type(self.struct), name).offset)


NULL = -1
"""Where an address stands that is none: the last of a call's addresses."""


class Template:
    """A struct of which all but the addresses is known: from those of a call to its bytes."""

    def __init__(self, a: Assembly, fields: Fields, places: Mapping[str, int | Sequence[int]], **numbers: int) -> None:
        """`places`: where among a call's addresses each pointer's stands; all others are null."""
        made = form(fields, a.states, a.extras)
        chosen = [NULL] * made.count
        for name, at in places.items():
            first = made.pointers[name]
            for k, place in enumerate([at] if isinstance(at, int) else at):
                chosen[first + k] = place
        begin = made.struct.pointers.offset
        self.numbers = bytes(made.struct(**numbers))[:begin]
        self.chosen = chosen
        """Which of a call's addresses each pointer is."""
        self._pack = struct.Struct(f"{begin}s{made.count}Q").pack
        self._choose = operator.itemgetter(*chosen)
        self.struct = made.struct

    def __call__(self, addresses: Sequence[int]) -> bytes:
        """`addresses`: the last of them is 0."""
        return self._pack(self.numbers, *self._choose(addresses))

    def aligned(self, addresses: Sequence[int], to: int) -> bool:
        """Whether all of them are multiples of so many bytes, a power of two."""
        return not functools.reduce(operator.or_, self._choose(addresses)) & (to - 1)
