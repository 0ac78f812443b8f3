"""Block-diagonal recurrent products in the C++ core, against the loop and against a W with zeros between its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, sigmoid, tanh

from recur.cells import Cell
from recur.cells.slstm import SLSTM
from recur.nn import Recurrent
from tests.affine_cells import case_of
from tests.support import ISAS, all_close, close, core, needs_core

pytestmark = needs_core


@dataclass
class Headed(Cell):
    """Products of a gate's name, whose gradients are the gates'."""

    heads: int = 2
    gates = ("z", "h")

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor]:
        return (tanh(sigmoid(x.z + h.z) * s.h + x.h + h.h),)


@dataclass
class Apart(Cell):
    """More products than gates, each with a gradient of its own, and a state beside the one that W multiplies."""

    heads: int = 2
    gates = ("a",)
    state_gates = ("p", "q", "r")
    states = ("h", "c")

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor, Tensor]:
        c = 0.5 * s.c + x.a + tanh(h.p) * h.q
        return (tanh(c + h.r), c)


SIZES = [
    # B, T, D, H, heads
    (3, 4, 3, 6, 2),  # several heads in a vector
    (2, 3, 5, 30, 3),
    (5, 3, 2, 99, 3),  # heads that end within a block
    (14, 2, 3, 128, 2),  # and with one
    (1, 3, 4, 520, 2),  # threads share a step
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", [Headed, Apart, SLSTM])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equal_to_the_loop(isa: str, sizes: tuple[int, ...], kind: Any, dtype: torch.dtype) -> None:
    B, T, D, H, heads = sizes
    case = case_of(kind(heads), B, T, D, H, dtype=dtype)
    case.weights = {name: (weight.detach() * 0.3).requires_grad_() for name, weight in case.weights.items()}
    options: dict[str, Any] = {"lengths": [1 + b % T for b in range(B)], "mask": torch.rand(B, H, dtype=dtype)}
    expected = case.everything(lambda: case.scan(backend="loop", **options))
    was, threads = core.isa, torch.get_num_threads()
    core.use(isa)
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            all_close(case.everything(lambda: case.scan(backend="native", **options)), expected)
    finally:
        core.isa = was
        torch.set_num_threads(threads)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("matmul_dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize(("H", "heads"), [(15, 3), (66, 2), (128, 4)])
def test_in_fewer_bits(isa: str, matmul_dtype: str, H: int, heads: int) -> None:
    """What W gives in the same format with zeros between its heads, but for the order of sums."""
    torch.manual_seed(0)
    case = case_of(Headed(heads), 3, 1, 5, H, dtype=torch.float32)
    whole = case_of(Headed(1), 3, 1, 5, H, dtype=torch.float32)
    whole.x, whole.state, whole.on_outputs, whole.on_state = case.x, case.state, case.on_outputs, case.on_state
    whole.weights = case.weights | {"weight_hh": case.cell.dense(case.weights["weight_hh"]).detach().requires_grad_()}
    was = core.isa
    core.use(isa)
    try:
        if matmul_dtype == "int8":
            with torch.no_grad():
                close(case.scan(matmul_dtype=matmul_dtype).outputs, whole.scan(matmul_dtype=matmul_dtype).outputs)
            return
        got, expected = (each.everything(lambda: each.scan(matmul_dtype=matmul_dtype)) for each in (case, whole))  # noqa: B023
    finally:
        core.isa = was
    d_W = expected.pop("grad weight_hh").unflatten(0, (2, heads, -1)).unflatten(-1, (heads, -1))
    expected["grad weight_hh"] = torch.stack([d_W[:, k, :, k] for k in range(heads)], 1).flatten(0, 2)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        close(got[name], value, name, tolerance=1e-4)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_a_stream_packs_blocks(heads: int) -> None:
    torch.manual_seed(0)
    net, x = Recurrent(SLSTM(heads), 6, 24, num_layers=2), torch.randn(3, 4, 6)
    whole, stream = net(x).outputs, net.stream(3)
    for k in range(4):
        close(stream.step(x[:, k]), whole[:, k].detach(), f"step {k}")
