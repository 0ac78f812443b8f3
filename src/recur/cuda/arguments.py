"""The kernels' arguments as Python sees them: kernels/arguments.cu, field by field."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from ctypes import Structure, c_int, c_void_p
from typing import Any

from torch import Tensor

from recur.program.assembly import Assembly


@functools.cache
def structs(states: int, extras: int) -> tuple[type[Structure], type[Structure]]:
    """Forward and Backward, of a cell with so many states and weights of its own."""

    def struct(name: str, *fields: str) -> type[Structure]:
        kinds = {"int": c_int, "pointer": c_void_p, "states": c_void_p * states, "extras": c_void_p * (extras + 1)}
        made = [(word, kinds[kind]) for kind, *words in map(str.split, fields) for word in words]
        return type(name, (Structure,), {"_fields_": made})

    forward = struct(
        "Forward",
        "int steps S H step rows",
        "pointer offset length share tape",
        "states state final_state initial",
        "pointer bias",
        "extras extra",
        "pointer mask W exchange arrived",
        "states carry",
        "pointer product",
    )
    backward = struct(
        "Backward",
        "int steps S H step rows later",
        "pointer offset length share tape",
        "states state initial",
        "extras extra",
        "pointer mask W",
        "states d_outputs d_final",
        "pointer xi d_share d_own",
        "states d_state",
        "pointer sums",
        "states carry",
        "pointer exchange arrived product",
    )
    return forward, backward


Given = int | Tensor | None | Sequence[Tensor | None]


def filled(assembly: Assembly, backward: bool, **given: Given) -> Structure:
    """A struct with these numbers, and the addresses of these tensors; the tensors must outlive it."""
    made = structs(assembly.states, assembly.extras)[backward]()
    for name, value in given.items():
        put(made, name, value)
    return made


def put(into: Structure, name: str, value: Given) -> None:
    if isinstance(value, int):
        setattr(into, name, value)
    elif value is None or isinstance(value, Tensor):
        setattr(into, name, address(value))
    else:
        array: Any = getattr(into, name)
        for k, part in enumerate(value):
            array[k] = address(part)


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
