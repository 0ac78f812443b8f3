"""Steps of one launch each, and the product with W before each of them, all in one call of the C++ core:
launches.cpp."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Hashable
from ctypes import Structure, byref, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from typing import NamedTuple

import torch

from recur.ops.cuda import blas
from recur.ops.cuda.arguments import Arguments
from recur.ops.cuda.blas import Described, Product, Side
from recur.ops.cuda.driver import Config, Prepared, current_stream
from recur.ops.cuda.launches import core, library, workspace_of
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.replayed import replayed

FEWEST_STEPS = 8
"""That are worth a graph."""


class _Steps(Structure):
    """As in launches.cpp, field by field."""

    _fields_ = [
        ("kernel", c_void_p),
        ("config", Config),
        ("clip", c_void_p),
        ("clip_config", Config),
        ("bound", c_uint64),
        ("arguments", c_void_p),
        *((name, c_int64) for name in ("step", "rows", "later", "product")),
        ("products", c_void_p),
        ("product_rows", c_void_p),
        ("product_count", c_int64),
        ("taken", c_void_p),
        *((name, c_int64) for name in ("steps", "H", "backward", "started")),
        *((name, c_int64) for name in ("a", "b", "c", "workspace", "workspace_bytes")),
    ]


class Products(NamedTuple):
    """With W, of what a step left."""

    all: list[Product]
    """For fewer and fewer rows, the fewest first: sequences of a batch may end one by one."""
    described: ctypes.Array[Described]
    rows: ctypes.Array[c_int64]
    workspace: int


class Form(NamedTuple):
    """What products with W depend on. Batches whose sequences end one by one have a layout of their own each."""

    dtype: torch.dtype
    into: torch.dtype
    S: int
    H: int
    wide: int
    """All products of a unit's row side by side."""
    uniform: bool
    backward: bool
    tf32: bool
    device: int


@functools.lru_cache(maxsize=64)
def products(form: Form) -> Products:
    """Asked of the current device, which is the form's."""
    H, wide, many = form.H, form.wide, [form.S]
    while not form.uniform and many[0] > 1:
        many.insert(0, -(-many[0] // 2))

    def made(S: int) -> Product:
        if form.backward:
            return Product(form.dtype, form.into, (S, H, wide), Side(wide), Side(H), H, False, form.tf32)
        return Product(form.dtype, form.into, (S, wide, H), Side(H), Side(H, True), wide, False, form.tf32)

    all = [made(S) for S in many]
    described = (Described * len(all))(*(one.described for one in all))
    return Products(all, described, (c_int64 * len(many))(*many), workspace_of(all))


class Stepping:
    """The steps of a pass, which are launched when it is called. `a`: what is multiplied, (S, …), which every step
    leaves to the next; `W`: whole, row after row."""

    def __init__(self, lay: Layout, index: int, backward: bool, kernel: Prepared, arguments: Arguments) -> None:
        self._lay, self._index, self._kernel, self._alive = lay, index, kernel, list[object]()
        taken = (c_int32 * lay.steps)(*lay.counts)
        self._all = _Steps(
            kernel=kernel.handle, config=kernel.config, arguments=ctypes.addressof(arguments.struct),
            step=arguments.at("step"), rows=arguments.at("rows"), later=arguments.at("later") if backward else 0,
            product=arguments.at("product"), taken=ctypes.addressof(taken), steps=lay.steps, H=lay.H, backward=backward,
        )  # fmt: skip
        self._arguments, self._tf32, self._clipping = arguments, False, kernel
        self._alive.append(taken)

    def multiply(self, of: torch.Tensor, W: torch.Tensor, tf32: bool, started: bool) -> None:
        """Before every step, the first too if it `started` from a state."""
        lay, all = self._lay, self._all
        self._tf32 = tf32
        wide, back = lay.assembly.products * lay.H, bool(all.backward)
        found = products(Form(of.dtype, lay.real, lay.S, lay.H, wide, lay.uniform, back, tf32, self._index))
        into = of.new_empty((lay.S, lay.H if back else wide), dtype=lay.real)
        workspace = of.new_empty(found.workspace, dtype=torch.uint8)
        all.products, all.product_rows = ctypes.addressof(found.described), ctypes.addressof(found.rows)
        all.product_count, all.started = len(found.all), started
        all.a, all.b, all.c = (part.data_ptr() for part in (of, W, into))
        all.workspace, all.workspace_bytes = workspace.data_ptr(), found.workspace
        self._alive += [found, of, W, into, workspace]

    def clip(self, kernel: Prepared, bound: float) -> None:
        """The gradient that a step carries back."""
        number = c_double(bound) if self._lay.real == torch.float64 else c_float(bound)
        self._clipping = kernel
        self._all.clip, self._all.clip_config = kernel.handle, kernel.config
        self._all.bound = int.from_bytes(bytes(number), "little")

    def __call__(self) -> None:
        stream = current_stream(self._index)
        if self._lay.steps < FEWEST_STEPS:
            self._launch(stream)
        else:
            replayed(self._index)(self._key(), self._lay.steps, stream, self._launch)

    def _key(self) -> Hashable:
        """All that its launches depend on."""
        all = self._all
        numbers = all.kernel, all.clip, all.bound, all.started, all.a, all.b, all.c, all.workspace, all.product_count
        return self._lay, self._tf32, numbers, bytes(self._arguments.struct)

    def _launch(self, stream: int) -> None:
        native, at = core(), c_int64()
        assert native is not None
        status = native.launch_steps(byref(library(self._index)), byref(self._all), stream, byref(at))
        if status:
            (self._kernel.check, blas.check, self._clipping.check)[at.value](status)
