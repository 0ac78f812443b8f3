"""cuBLAS as torch has loaded it and set it up: products of matrices that are given by their addresses.

How float32 is multiplied is said with every product, so that no switch of torch's has to be turned for it; and a
product takes a few microseconds of Python, where torch.mm, and the views that it is given, would take some tens.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_double, c_float, c_int, c_void_p
from typing import NamedTuple

import torch

from recur.errors import BackendError

ALLOCATION_FAILED = 3
DEFAULT_MATH = 0
DEFAULT_ALGORITHM = -1
TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14}
IN_FLOAT32, IN_FLOAT64, IN_TF32 = 68, 70, 77
"""In which it multiplies and adds."""


def names() -> list[str]:
    """Of its library: that of the CUDA version that torch was built for, which is loaded already."""
    major = (torch.version.cuda or "13").split(".")[0]
    return [f"libcublas.so.{major}", f"cublas64_{major}.dll"]


@functools.cache
def library() -> ctypes.CDLL | None:
    for name in names():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def handle(exact: bool) -> c_void_p:
    """That of this thread and its current stream. `exact`: float32 in float32, whatever torch's switch says."""
    found = c_void_p(torch._C._cuda_getCurrentBlasHandle())
    if exact:  # torch sets the mode anew whenever it takes the handle itself
        _check(_function("cublasSetMathMode")(found, c_int(DEFAULT_MATH)))
    return found


@functools.cache
def _function(name: str) -> ctypes._NamedFuncPointer:
    found = library()
    assert found is not None
    made: ctypes._NamedFuncPointer = getattr(found, name)
    return made


def _check(status: int) -> None:
    if status == ALLOCATION_FAILED:
        raise MemoryError("the GPU ran out of memory: a product by cuBLAS")
    if status:
        raise BackendError(f"cuBLAS failed with status {status}")


class Side(NamedTuple):
    """A matrix of a product, row after row."""

    pitch: int
    """How many numbers lie between the beginnings of two rows."""
    transposed: bool = False


class Product:
    """C = A B, or C += A B, with C of (rows, columns) and `inner` numbers to each sum.

    A and B are of `dtype`, C is of `into`; their addresses change from call to call.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        into: torch.dtype,
        sizes: tuple[int, int, int],
        a: Side,
        b: Side,
        pitch: int,
        adds: bool,
        tf32: bool,
    ) -> None:
        rows, columns, inner = sizes
        self.dtype, self.into, self.sizes, self.a, self.b, self.pitch = dtype, into, sizes, a, b, pitch
        self.adds, self.tf32 = adds, tf32
        number = c_double if dtype == torch.float64 else c_float
        self._one, self._beta = number(1.0), number(1.0 if adds else 0.0)
        how = IN_FLOAT64 if dtype == torch.float64 else IN_TF32 if tf32 else IN_FLOAT32
        kind, one, beta = c_int(TYPES[dtype]), ctypes.byref(self._one), ctypes.byref(self._beta)
        # cuBLAS goes column after column: what it sees is Cᵀ = Bᵀ Aᵀ.
        self._head = (
            c_int(b.transposed), c_int(a.transposed), c_int(columns), c_int(rows), c_int(inner), one,
        )  # fmt: skip
        self._between, self._middle = (kind, c_int(b.pitch)), (kind, c_int(a.pitch), beta)
        self._tail = c_int(TYPES[into]), c_int(pitch), c_int(how), c_int(DEFAULT_ALGORITHM)
        self.empty = not (rows and columns and inner)

    def __call__(self, handle: c_void_p, a: int, b: int, c: int) -> None:
        if self.empty:
            return
        status = _function("cublasGemmEx")(
            handle, *self._head, c_void_p(b), *self._between, c_void_p(a), *self._middle, c_void_p(c), *self._tail
        )
        if status:
            _check(status)
