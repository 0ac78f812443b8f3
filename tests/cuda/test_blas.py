"""Products by cuBLAS as it is called, without a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from recur.cuda import blas
from recur.cuda.blas import Product, Side, Split, splits_of
from recur.errors import BackendError
from tests.cuda.support import needs_gpu


class Library:
    """In cuBLAS' place: every function keeps what it was given, and returns one status."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.calls = status, list[tuple[str, list[Any]]]()

    def __getattr__(self, name: str) -> Callable[..., int]:
        def function(*arguments: Any) -> int:
            self.calls.append((name, [getattr(a, "value", getattr(a, "_obj", a)) for a in arguments]))
            return self.status

        return function


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setattr(blas, "library", lambda: made)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentBlasHandle", lambda: 7, raising=False)
    blas._function.cache_clear()
    yield made
    blas._function.cache_clear()


@pytest.mark.parametrize(
    ("dtype", "into", "tf32", "kinds", "how"),
    [
        (torch.float32, torch.float32, True, (0, 0), 77),
        (torch.float32, torch.float32, False, (0, 0), 68),
        (torch.float64, torch.float64, False, (1, 1), 70),
        (torch.bfloat16, torch.float32, False, (14, 0), 68),
        (torch.float16, torch.float16, False, (2, 2), 68),
    ],
)
def test_a_product_row_after_row_as_columns(
    library: Library, dtype: torch.dtype, into: torch.dtype, tf32: bool, kinds: tuple[int, int], how: int
) -> None:
    """C (2, 3) = Aᵀ B of A (5, 2) and B (5, 3): column after column, Cᵀ = Bᵀ A."""
    run = Product(dtype, into, (2, 3, 5), Side(20, True), Side(30), 40, True, tf32)
    run(blas.handle(not tf32), 100, 200, 300)
    *modes, (name, given) = library.calls
    assert modes == ([] if tf32 else [("cublasSetMathMode", [7, 0])])
    assert name == "cublasGemmEx"
    (one,), (beta,) = ([part.value for part in given[at : at + 1]] for at in (6, 13))
    assert (one, beta) == (1.0, 1.0)
    assert given[:6] == [7, 0, 1, 3, 2, 5]
    assert given[7:13] == [200, kinds[0], 30, 100, kinds[0], 20]
    assert given[14:] == [300, kinds[1], 40, how, -1]


def test_nothing_to_multiply_and_what_fails(library: Library) -> None:
    nothing = Product(torch.float32, torch.float32, (2, 3, 0), Side(1), Side(3), 3, False, False)
    nothing(ctypes.c_void_p(7), 1, 2, 3)
    assert not library.calls
    run = Product(torch.float32, torch.float32, (2, 3, 5), Side(5), Side(3), 3, False, False)
    library.status = 3
    with pytest.raises(MemoryError, match="the GPU ran out of memory: a product by cuBLAS"):
        run(ctypes.c_void_p(7), 1, 2, 3)
    library.status = 13
    with pytest.raises(BackendError, match="cuBLAS failed with status 13"):
        run(ctypes.c_void_p(7), 1, 2, 3)


def test_long_and_narrow_products_are_made_in_pieces() -> None:
    assert splits_of((2048, 512, 64 * 256), 132) == 4
    assert splits_of((2048, 512, 64 * 255), 132) == 4
    assert splits_of((1024, 256, 64 * 256), 132) == 8
    assert splits_of((4096, 1024, 64 * 256), 132) == 1  # C itself has tiles enough
    assert splits_of((2048, 512, 700), 132) == 1
    assert splits_of((512, 128, 8191), 132) == 1  # which nothing divides


def test_pieces_and_their_sum(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """C (2, 3) = Aᵀ B of A (8, 2) and B (8, 3), in two pieces: four rows of each."""
    monkeypatch.setattr(torch, "device", lambda *name: "cpu")
    run = Split((2, 3, 8), Side(20, True), Side(3), True, 2, 0)
    run(ctypes.c_void_p(7), 100, 200, 300)
    (name, given), (then, summed) = library.calls
    assert (name, then) == ("cublasGemmStridedBatchedEx", "cublasSgemv_v2")
    pieces = given[16]
    assert given[:6] == [7, 0, 1, 3, 2, 4]
    assert given[7:15] == [200, 0, 3, 12, 100, 0, 20, 80]
    assert given[17:] == [0, 3, 6, 2, 77, -1]
    assert summed[:4] == [7, 0, 6, 2]
    assert summed[5:9] == [pieces, 6, run._ones.data_ptr(), 1]
    assert summed[10:] == [300, 1]
    assert [part.value for part in (given[6], given[15], summed[4], summed[9])] == [1.0, 0.0, 1.0, 1.0]
    library.status = 3
    with pytest.raises(MemoryError):
        run(ctypes.c_void_p(7), 100, 200, 300)


@pytest.mark.parametrize("adds", [pytest.param(adds, marks=needs_gpu) for adds in (False, True)])
def test_pieces_on_a_gpu(adds: bool) -> None:
    sizes = rows, columns, inner = 96, 40, 4096
    A, B = (torch.randn(inner, width, device="cuda") for width in (rows + 4, columns))
    C = torch.randn(rows, columns, device="cuda")
    expected = A[:, :rows].double().t() @ B.double() + (C.double() if adds else 0)
    run = Split(sizes, Side(rows + 4, True), Side(columns), adds, splits_of(sizes, 132), torch.cuda.current_device())
    run(blas.handle(False), A.data_ptr(), B.data_ptr(), C.data_ptr())
    assert float((C - expected).norm() / expected.norm()) < 1e-3


def test_it_is_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert blas.names() == ["libcublas.so.13", "cublas64_13.dll"]
    blas.library.cache_clear()
    monkeypatch.setattr(blas, "names", lambda: ["libnothing-of-the-kind.so"])
    assert blas.library() is None
    blas.library.cache_clear()
    monkeypatch.setattr(blas, "names", lambda: ["libm.so.6"])
    assert blas.library() is not None
    blas.library.cache_clear()
