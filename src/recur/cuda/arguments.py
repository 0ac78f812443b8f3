"""The kernels' arguments as Python sees them: kernels/arguments.cu, field by field."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import Structure, c_int, c_uint64

from torch import Tensor

from recur.program.assembly import Assembly

Fields = tuple[tuple[str], tuple[str, ...]]

FORWARD: Fields = (
    ("steps S H step rows",),
    ("offset length share tape", "state* final_state* initial*", "bias input_bias", "extra+", "mask W exchange arrived",
     "carry*", "product"),
)  # fmt: skip
BACKWARD: Fields = (
    ("steps S H step rows later",),
    ("offset length share tape", "state* initial*", "extra+", "mask W", "d_outputs* d_final*", "xi d_share d_own",
     "d_state*", "sums", "carry*", "exchange arrived product"),
)  # fmt: skip
STREAM: Fields = (
    ("n slots D H x_pitch out_pitch",),
    ("index x U W bias_ih bias_hh", "extra+", "v parity tickets", "state*", "out"),
)  # fmt: skip
"""Whole numbers, then pointers: with * one for each state, with + for each weight of the cell's own, and one more."""


class Form:
    """Where everything stands, for a cell with so many states and weights of its own."""

    def __init__(self, fields: Fields, states: int, extras: int) -> None:
        (names,), pointers = fields
        numbers, self.pointers, count = names.split(), dict[str, int](), 0
        for name in " ".join(pointers).split():
            self.pointers[name.rstrip("*+")] = count
            count += states if name.endswith("*") else extras + 1 if name.endswith("+") else 1
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
