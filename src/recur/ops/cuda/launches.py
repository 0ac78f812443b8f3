"""Kernels and products one after the other, in one call of the C++ core: launches.cpp. Without it, by Python."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterable, Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_void_p
from typing import NamedTuple, TypeAlias

from recur.ops.cuda import blas
from recur.ops.cuda.arguments import Template
from recur.ops.cuda.blas import Described, Product
from recur.ops.cuda.driver import Config, Prepared, current_stream, driver
from recur.utils import core_library

Where: TypeAlias = tuple[int, int]
"""Which of a call's addresses, and how many bytes behind it."""


class Kernel(NamedTuple):
    prepared: Prepared
    template: Template


class Multiplication(NamedTuple):
    """C = A B."""

    product: Product
    a: Where
    b: Where
    c: Where


class _Where(Structure):
    _fields_ = [("address", c_int64), ("offset", c_int64)]


class _Launch(Structure):
    """As in launches.cpp, field by field."""

    _fields_ = [
        ("product", POINTER(Described)),
        *((name, _Where) for name in "abc"),
        ("kernel", c_void_p),
        ("config", POINTER(Config)),
        ("numbers", c_char_p),
        ("bytes", c_int64),
        ("pointers", POINTER(c_int32)),
        ("count", c_int64),
    ]


class _Library(Structure):
    _fields_ = [("launch", c_void_p), ("multiply", c_void_p), ("handle", c_void_p)]


class CoreFunctions:
    """Functions of the C++ core that make many launches in one call."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.launch, self.launch_steps = library.recur_launch, library.recur_launch_steps
        self.launch.argtypes = [c_void_p, c_void_p, c_int64, c_char_p, c_int64, c_int64, c_void_p, c_void_p]
        self.launch_steps.argtypes = [c_void_p] * 4


@functools.cache
def core() -> CoreFunctions | None:
    """Return the functions of the C++ core, or None if the core cannot be used."""
    library = core_library.load()
    return None if isinstance(library, str) else CoreFunctions(library)


@functools.cache
def library(index: int) -> _Library:
    """The functions that launch, and cuBLASLt's handle of a device."""
    found = driver()
    assert found is not None
    functions = (found.cuda.cuLaunchKernelEx, blas.function("cublasLtMatmul"))
    launch, multiply = (ctypes.cast(function, c_void_p).value for function in functions)
    return _Library(launch, multiply, blas.handle(index))


class Launches:
    """`workspace`: which of a call's addresses is memory for its products, of as many bytes as they need."""

    def __init__(self, index: int, all: Sequence[Kernel | Multiplication], workspace: int) -> None:
        self._index, self._workspace = index, workspace
        self._all = [one for one in all if isinstance(one, Kernel) or not one.product.empty]
        self._bytes = workspace_of(one.product for one in self._all if isinstance(one, Multiplication))

    def __call__(self, addresses: Sequence[int]) -> None:
        stream = current_stream(self._index)
        native = core()
        if native is None:
            self._by_python(addresses, stream)
            return
        made, count, at = self._made, len(self._all), c_int64()
        given = struct.pack(f"{len(addresses)}q", *addresses)
        status = native.launch(
            byref(library(self._index)), made, count, given, self._workspace, self._bytes, stream, byref(at)
        )
        if status:
            self._fail(self._all[at.value], status)

    @functools.cached_property
    def _made(self) -> ctypes.Array[_Launch]:
        return (_Launch * len(self._all))(*map(_launch, self._all))

    def _by_python(self, addresses: Sequence[int], stream: int) -> None:
        for one in self._all:
            if isinstance(one, Kernel):
                one.prepared.packed(stream, one.template(addresses))
                continue
            where = [addresses[place] + offset for place, offset in (one.a, one.b, one.c)]
            one.product(self._index, stream, addresses[self._workspace], *where)

    def _fail(self, one: Kernel | Multiplication, status: int) -> None:
        if isinstance(one, Kernel):
            one.prepared.check(status)
        else:
            blas.check(status)


def workspace_of(products: Iterable[Product]) -> int:
    """Bytes that the most demanding of them needs."""
    return max((one.workspace for one in products if not one.empty), default=0)


def _launch(one: Kernel | Multiplication) -> _Launch:
    if isinstance(one, Multiplication):
        a, b, c = (_Where(*where) for where in one[1:])
        return _Launch(product=ctypes.pointer(one.product.described), a=a, b=b, c=c)
    chosen, numbers = one.template.chosen, one.template.numbers
    return _Launch(
        kernel=one.prepared.handle, config=ctypes.pointer(one.prepared.config), numbers=numbers, bytes=len(numbers),
        pointers=(c_int32 * len(chosen))(*chosen), count=len(chosen),
    )  # fmt: skip
