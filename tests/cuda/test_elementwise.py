"""Cells without a recurrent product on a GPU: all steps in one launch, with slices of time and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from recur.cells import make_cell
from recur.cells.sru import SRU
from recur.ops.bptt import BPTT
from recur.ops.cuda.config import override
from tests.cuda.support import agrees, everything, needs_gpu, on_gpu
from tests.support import AFFINE_CELLS, NATIVE_CELLS, Case, close

pytestmark = needs_gpu

CELLS = [name for name in NATIVE_CELLS if not make_cell(name).recurrent_gates]
SLICED = [*AFFINE_CELLS, "sru without peephole"]
SIZES = [(1, 1, 3, 1), (2, 40, 3, 33), (3, 130, 4, 650), (40, 33, 8, 64)]


def case_of(name: str, *sizes: int, dtype: Any = torch.float64) -> Case:
    if name != "sru without peephole":
        return on_gpu(name, *sizes, dtype=dtype)
    case = on_gpu("sru", *sizes, dtype=dtype)
    case.cell = SRU(peephole=False)
    case.weights = {key: w for key, w in case.weights.items() if not key.startswith("v_")}
    return case


def options_of(which: str, B: int, T: int) -> dict[str, Any]:
    numbers = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, T + 1, (B,), generator=numbers)
    lengths[B // 2] = T
    reset = (torch.rand(B, T, generator=numbers) < 0.1).cuda()
    xi = torch.rand(B, T, generator=numbers, dtype=torch.float64) * 2
    xi[:, T // 2] = 0
    return {
        "lengths": {"lengths": lengths},
        "reset": {"reset": reset, "reverse": True},
        "truncated": {"bptt": "truncated:7"},
        "ξ": {"bptt": BPTT(xi=xi)},
        "all": {"lengths": lengths, "reset": reset, "bptt": BPTT(xi=xi)},
    }[which]


@pytest.fixture(params=[1, 2, 8, 64, None], ids=lambda n: "by plan" if n is None else f"{n} slices")
def slices(request: pytest.FixtureRequest) -> Iterator[int | None]:
    with override(slices=request.param):
        yield request.param


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", [*CELLS, SLICED[-1]])
def test_every_cell(slices: int | None, name: str, size: tuple[int, ...], dtype: torch.dtype) -> None:
    if slices in (None, 1) or name in SLICED:
        agrees(case_of(name, *size, dtype=dtype))


@pytest.mark.parametrize("which", ["lengths", "reset", "truncated", "ξ", "all"])
@pytest.mark.parametrize("name", [*CELLS, SLICED[-1]])
def test_options(slices: int | None, name: str, which: str) -> None:
    if slices in (None, 1) or name in SLICED:
        agrees(case_of(name, 5, 70, 4, 33), **options_of(which, 5, 70))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("H", [32, 33])  # whole pairs, and not
@pytest.mark.parametrize("name", [*CELLS, SLICED[-1]])
def test_sixteen_bits(slices: int | None, name: str, H: int, dtype: torch.dtype) -> None:
    if slices in (None, 1) or name in SLICED:
        agrees(case_of(name, 5, 40, 16, H, dtype=dtype), trace=False)


@pytest.mark.parametrize("name", [*CELLS, SLICED[-1]])
def test_many_steps(slices: int | None, name: str) -> None:
    if slices in (None, 1) or name in SLICED:
        agrees(case_of(name, 2, 4096, 3, 40), trace=False)


@pytest.mark.parametrize("name", SLICED)
def test_twice_the_same(slices: int | None, name: str) -> None:
    case = case_of(name, 3, 500, 8, 100, dtype=torch.float32)
    first, second = everything(case, "cuda"), everything(case, "cuda")
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_what_xi_cuts_off_may_be_anything(slices: int | None) -> None:
    """A NaN from later steps ends where ξ is 0."""
    case = on_gpu("mingru", 2, 100, 3, 16)
    case.on_outputs[:, 80] = torch.nan
    xi = torch.ones(2, 100, dtype=torch.float64)
    xi[:, 50] = 0
    got, expected = (everything(case, backend, False, bptt=BPTT(xi=xi)) for backend in ("cuda", "loop"))
    assert expected["grad x"][:, :50].isfinite().all()
    close(got["grad x"][:, :50], expected["grad x"][:, :50], "grad x", 1e-11)
    close(got["grad h0"], expected["grad h0"], "grad h0", 1e-11)
