"""Matrix products by cuBLASLt, on matrices that are given by their addresses.

The precision of float32 products is set per matmul, so PyTorch's global switch does not change. The algorithm is chosen
once per matmul, so a call costs a few microseconds of CPU time.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from ctypes import Structure, byref, c_double, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import NamedTuple

import torch

from recur.errors import BackendError

ALLOCATION_FAILED = 3
TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14}
IN_FLOAT32, IN_FLOAT64, IN_TF32 = 68, 70, 77
"""cublasComputeType_t."""
TRANSPOSED_LEFT, TRANSPOSED_RIGHT = 3, 4
MOST_BYTES, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)
"""Attributes of the algorithm preferences."""
ADDED_IN_PLACE, ADDED_IN_FLOAT32 = 1, 2
"""Split-K reductions that give the same bits in every run: in the output, or in float32 before rounding."""
MAX_WORKSPACE = 32 << 20
"""Upper limit in bytes of the workspace, which is also at most as large as the matrices of a matmul."""
ALIGNED_BYTES = 16
"""Alignment in bytes of addresses that the fast algorithms need."""


def library_names() -> list[str]:
    """Return file names of the cuBLASLt of the CUDA version that PyTorch was built for, which is already loaded."""
    major = (torch.version.cuda or "13").split(".")[0]
    return [f"libcublasLt.so.{major}", f"cublasLt64_{major}.dll"]


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the loaded cuBLASLt, or None if it is missing."""
    for name in library_names():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@functools.cache
def function(name: str) -> ctypes._NamedFuncPointer:
    """Return a function of cuBLASLt, which must be loaded."""
    found = library()
    assert found is not None
    made: ctypes._NamedFuncPointer = getattr(found, name)
    return made


@functools.cache
def handle(index: int) -> c_void_p:
    """Return the cuBLASLt handle of a device, which must be the current one. All threads and streams share it."""
    found = c_void_p()
    check(function("cublasLtCreate")(byref(found)))
    return found


def check(status: int) -> None:
    """Raise an error for a cuBLAS status other than success."""
    if status == ALLOCATION_FAILED:
        raise MemoryError("the GPU ran out of memory in a cuBLAS matrix product")
    if status:
        raise BackendError(f"cuBLAS failed with status {status}")


class MatmulOperand(NamedTuple):
    """Operand of a matmul, in row-major order."""

    pitch: int
    """Distance between two rows, in elements."""
    transposed: bool = False


class MatmulDescriptor(Structure):
    """Descriptor of a matmul for C++: the struct `Product` of launches.cpp."""

    _fields_ = [
        *((name, c_void_p) for name in ("how", "left", "right", "out")),
        ("algorithms", c_uint64 * 8 * 2),
        ("one", c_uint64),
        ("beta", c_uint64),
    ]


class _HeuristicResult(Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


class Matmul:
    """Matrix product C = A B, or C += A B if `adds`; `sizes` is (rows of C, columns of C, inner dimension).

    A and B have the dtype `dtype`, C the dtype `into`, and `pitch` elements between two rows. A call gives addresses.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        into: torch.dtype,
        sizes: tuple[int, int, int],
        a: MatmulOperand,
        b: MatmulOperand,
        pitch: int,
        adds: bool,
        tf32: bool,
    ) -> None:
        self.dtype, self.into, self.sizes, self.a, self.b, self.pitch = dtype, into, sizes, a, b, pitch
        self.adds, self.tf32 = adds, tf32
        self.empty = not all(sizes)

    @functools.cached_property
    def workspace(self) -> int:
        """Bytes of workspace."""
        return self._prepared[1]

    @property
    def described(self) -> MatmulDescriptor:
        return self._prepared[0]

    @functools.cached_property
    def _most_workspace(self) -> int:
        rows, columns, inner = self.sizes
        read = (rows + columns) * inner * self.dtype.itemsize
        return min(MAX_WORKSPACE, read + rows * columns * self.into.itemsize)

    @functools.cached_property
    def _prepared(self) -> tuple[MatmulDescriptor, int]:
        """Descriptor and workspace size, queried once from the current device."""
        rows, columns, inner = self.sizes
        double = self.dtype == torch.float64
        number = c_double if double else c_float
        made = MatmulDescriptor(one=_bits(number(1.0)), beta=_bits(number(1.0 if self.adds else 0.0)))
        how = IN_FLOAT64 if double else IN_TF32 if self.tf32 else IN_FLOAT32
        kind, into = TYPES[self.dtype], TYPES[self.into]
        made.how = _create(
            "cublasLtMatmulDescCreate", c_int(how), c_int(TYPES[torch.float64 if double else torch.float32])
        )
        # cuBLAS is column-major: it computes Cᵀ = Bᵀ Aᵀ.
        for which, side in ((TRANSPOSED_LEFT, self.b), (TRANSPOSED_RIGHT, self.a)):
            _set("cublasLtMatmulDescSetAttribute", made.how, which, c_int(side.transposed))
        left = (inner, columns) if self.b.transposed else (columns, inner)
        right = (rows, inner) if self.a.transposed else (inner, rows)
        made.left, made.right = _layout(kind, *left, self.b.pitch), _layout(kind, *right, self.a.pitch)
        made.out = _layout(into, columns, rows, self.pitch)
        freed = [function(f"cublasLt{what}Destroy") for what in ("MatmulDesc", *["MatrixLayout"] * 3)]
        weakref.finalize(self, _destroy, freed, [made.how, made.left, made.right, made.out]).atexit = False
        most = self._most_workspace
        found = [_algorithm(made, alignment, most, self.into) for alignment in (ALIGNED_BYTES, self.dtype.itemsize)]
        for into_place, one in zip(made.algorithms, found, strict=True):
            if one is not None:
                into_place[:] = one.algorithm[:]
        return made, max(most if one is None else one.workspace for one in found)

    def __call__(self, index: int, stream: int, workspace: int, a: int, b: int, c: int) -> None:
        """Run the matmul from Python, where the C++ core is missing."""
        if self.empty:
            return
        made = self.described
        chosen = made.algorithms[any(address % ALIGNED_BYTES for address in (a, b, c))]
        one, beta = (ctypes.addressof(made) + getattr(MatmulDescriptor, name).offset for name in ("one", "beta"))
        status = function("cublasLtMatmul")(
            handle(index), c_void_p(made.how), c_void_p(one), c_void_p(b), c_void_p(made.left), c_void_p(a),
            c_void_p(made.right), c_void_p(beta), c_void_p(c), c_void_p(made.out), c_void_p(c), c_void_p(made.out),
            chosen if any(chosen) else None, c_void_p(workspace), c_size_t(self.workspace), c_void_p(stream),
        )  # fmt: skip
        check(status)


def _destroy(functions: list[ctypes._NamedFuncPointer], described: list[int]) -> None:
    for function, one in zip(functions, described, strict=True):
        function(c_void_p(one))


def _bits(number: c_float | c_double) -> int:
    return int.from_bytes(bytes(number), "little")


def _create(name: str, *arguments: object) -> int | None:
    found = c_void_p()
    check(function(name)(byref(found), *arguments))
    return found.value


def _set(name: str, of: int | None, which: int, value: ctypes._SimpleCData[int]) -> None:
    check(function(name)(c_void_p(of), c_int(which), byref(value), c_size_t(ctypes.sizeof(value))))


def _layout(kind: int, rows: int, columns: int, pitch: int) -> int | None:
    return _create("cublasLtMatrixLayoutCreate", c_int(kind), c_uint64(rows), c_uint64(columns), c_int64(pitch))


def _algorithm(made: MatmulDescriptor, alignment: int, most: int, into: torch.dtype) -> _HeuristicResult | None:
    """Return the algorithm that cuBLASLt ranks first for an alignment and a limit on the workspace, in bytes."""
    wanted = _create("cublasLtMatmulPreferenceCreate")
    put = functools.partial(_set, "cublasLtMatmulPreferenceSetAttribute", wanted)
    put(MOST_BYTES, c_uint64(most))
    put(REDUCTIONS, c_uint32(ADDED_IN_FLOAT32 if into.itemsize == 2 else ADDED_IN_PLACE | ADDED_IN_FLOAT32))
    for which in ALIGNMENTS:
        put(which, c_uint32(alignment))
    found, count = _HeuristicResult(), c_int()
    parts = [c_void_p(of) for of in (made.how, made.left, made.right, made.out, made.out, wanted)]
    status = function("cublasLtMatmulAlgoGetHeuristic")(
        handle(torch.cuda.current_device()), *parts, c_int(1), byref(found), byref(count)
    )
    function("cublasLtMatmulPreferenceDestroy")(c_void_p(wanted))
    return found if not status and count.value and not found.state else None
