"""Products by cuBLAS as it is called, without a GPU."""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from recur.errors import BackendError
from recur.ops.cuda import blas
from recur.ops.cuda.blas import Matmul, MatmulOperand


class Library:
    """In cuBLAS' place: what is made gets a number, and everything is kept by it."""

    def __init__(self) -> None:
        self.made: dict[int, list[Any]] = {}
        self.multiplied: list[list[Any]] = []
        self.status, self.found, self.destroyed = 0, 1, 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        return functools.partial(self.call, name)

    def call(self, name: str, *arguments: Any) -> int:
        values = [getattr(a, "value", a) for a in arguments]
        if name == "cublasLtMatmul":
            self.multiplied.append(values)
            return self.status
        if name.endswith("Create"):
            arguments[0]._obj.value = 100 + len(self.made)
            self.made[100 + len(self.made)] = [name, *values[1:]]
        elif name.endswith("SetAttribute"):
            self.made[values[0]].append((values[1], arguments[2]._obj.value, values[3]))
        elif name.endswith("AlgoGetHeuristic"):
            alignment = dict(part[:2] for part in self.made[values[6]][1:])[5]
            found = arguments[8]._obj
            found.algorithm[0], found.workspace = 1000 + alignment, alignment
            arguments[9]._obj.value = self.found
        else:
            self.destroyed += 1
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setattr(blas, "library", lambda: made)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for kept in (blas.function, blas.handle):
        kept.cache_clear()
    yield made
    for kept in (blas.function, blas.handle):
        kept.cache_clear()


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
    run = Matmul(dtype, into, (2, 3, 5), MatmulOperand(20, True), MatmulOperand(30), 40, True, tf32)
    run(0, 9, 8, 160, 320, 480)
    run(0, 9, 8, 160, 322, 480)
    handle, of, one, b, left, a, right, beta, *rest, algorithm, workspace, size, stream = library.multiplied[0]
    number = ctypes.c_double if dtype == torch.float64 else ctypes.c_float
    assert [number.from_address(at).value for at in (one, beta)] == [1.0, 1.0]
    assert library.made[of] == ["cublasLtMatmulDescCreate", how, int(dtype == torch.float64), (3, 0, 4), (4, 1, 4)]
    layouts = [library.made[which] for which in (left, right, rest[1])]
    expected = (kinds[0], 3, 5, 30), (kinds[0], 2, 5, 20), (kinds[1], 3, 2, 40)
    assert layouts == [["cublasLtMatrixLayoutCreate", *parts] for parts in expected]
    assert (a, b, rest) == (160, 320, [480, rest[1], 480, rest[1]])
    assert (library.made[handle], workspace, size, stream) == (["cublasLtCreate"], 8, 16, 9)
    wanted = [made for made in library.made.values() if "Preference" in made[0]]
    most = 25 * dtype.itemsize + 6 * into.itemsize  # what the matrices take
    assert [made[1:3] for made in wanted] == [[(1, most, 8), (3, 2 if into.itemsize == 2 else 3, 4)]] * 2
    assert algorithm[0] == 1016
    assert library.multiplied[1][-4][0] == 1000 + dtype.itemsize  # of a B that begins anywhere
    before = library.destroyed
    del run
    gc.collect()
    assert library.destroyed == before + 4


def test_nothing_to_multiply_and_what_fails(library: Library) -> None:
    nothing = Matmul(torch.float32, torch.float32, (2, 3, 0), MatmulOperand(1), MatmulOperand(3), 3, False, False)
    nothing(0, 9, 8, 16, 32, 48)
    assert not library.multiplied
    library.found = 0
    run = Matmul(torch.float32, torch.float32, (2, 3, 5), MatmulOperand(5), MatmulOperand(3), 3, False, False)
    run(0, 9, 8, 16, 32, 48)
    assert library.multiplied[0][-4] is None  # cuBLAS finds one itself
    assert run.workspace == 4 * (2 * 5 + 5 * 3 + 2 * 3)
    library.status = 3
    with pytest.raises(MemoryError, match="the GPU ran out of memory in a cuBLAS matrix product"):
        run(0, 9, 8, 16, 32, 48)
    library.status = 13
    with pytest.raises(BackendError, match="cuBLAS failed with status 13"):
        run(0, 9, 8, 16, 32, 48)


def test_it_is_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert blas.library_names() == ["libcublasLt.so.13", "cublasLt64_13.dll"]
    blas.library.cache_clear()
    monkeypatch.setattr(blas, "library_names", lambda: ["libnothing-of-the-kind.so"])
    assert blas.library() is None
    blas.library.cache_clear()
    monkeypatch.setattr(blas, "library_names", lambda: ["libm.so.6"])
    assert blas.library() is not None
    blas.library.cache_clear()
