"""Products by cuBLAS as it is called, without a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from recur.cuda import blas
from recur.cuda.blas import Product, Side
from recur.errors import BackendError


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
