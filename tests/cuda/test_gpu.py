"""Backend `cuda` against the loop in float64: every cell, every option, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recur.ops.bptt import BPTT
from recur.ops.cuda.launches import graph_cache
from tests.cuda.support import agrees, needs_gpu, on_gpu
from tests.support import NATIVE_CELLS, close

pytestmark = needs_gpu

SIZES = [(1, 1, 1, 1), (2, 3, 7, 5), (13, 6, 3, 33), (25, 4, 16, 64)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_every_cell(name: str, size: tuple[int, ...]) -> None:
    if name == "slstm":  # whose heads divide its units
        size = (*size[:3], size[3] // 4 * 4 + 4)
    for dtype in (torch.float64, torch.float32):
        agrees(on_gpu(name, *size, dtype=dtype))


OPTIONS = ["lengths", "reset", "both, reversed", "truncated", "sliding", "ξ", "clip", "mask"]


def options_of(case: Any) -> dict[str, dict[str, Any]]:
    B, T, _ = case.x.shape
    H = case.weights["weight_ih"].shape[0] // len(case.cell.gates)
    numbers = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, T + 1, (B,), generator=numbers)
    lengths[0] = T
    reset = (torch.rand(B, T, generator=numbers) < 0.3).cuda()
    xi = torch.rand(B, T, generator=numbers, dtype=torch.float64) * 2
    xi[:, 2] = 0
    mask = ((torch.rand(B, H, generator=numbers) < 0.7) / 0.7).to("cuda", case.x.dtype)
    return {
        "lengths": {"lengths": lengths},
        "reset": {"reset": reset},
        "both, reversed": {"lengths": lengths, "reset": reset, "reverse": True},
        "truncated": {"bptt": "truncated:3"},
        "sliding": {"bptt": "sliding:3"},
        "ξ": {"bptt": BPTT(xi=xi), "lengths": lengths},
        "grad_clip": {"bptt": "truncated:4,clip:0.7", "lengths": lengths},
        "mask": {"mask": mask, "reset": reset},
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("which", OPTIONS)
@pytest.mark.parametrize("name", ["lstm", "gru", "peephole", "indrnn", "slstm", "lru", "elman"])
def test_options(name: str, which: str, dtype: torch.dtype) -> None:
    case = on_gpu(name, 7, 9, 5, 24, dtype=dtype)
    options = options_of(case)[which]
    if which == "mask" and not case.cell.recurrent_gates:
        pytest.skip("no product with W")
    agrees(case, **options)


@pytest.mark.parametrize("which", ["lengths", "ξ", "clip"])
def test_projection(which: str) -> None:
    case = on_gpu("lstm", 5, 6, 4, 20, P=7)
    agrees(case)
    options = options_of(case)[which]
    agrees(case, **options)
    mask = (torch.rand(5, 7) < 0.7).to("cuda", torch.float64)
    agrees(case, mask=mask, **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_sixteen_bits(name: str, dtype: torch.dtype) -> None:
    agrees(on_gpu(name, 5, 8, 16, 32, dtype=dtype), trace=False)


def test_without_bias_and_state() -> None:
    case = on_gpu("gru", 4, 5, 6, 40, bias=False)
    agrees(case)
    agrees(on_gpu("mingru", 4, 5, 6, 40, bias=False))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_gradients_that_lie_apart(dtype: torch.dtype) -> None:
    """Inputs and gradients that are parts of wider tensors, step after step and row after row."""
    case = on_gpu("lstm", 4, 6, 5, 24, dtype=dtype)
    wide = torch.randn(6, 4, 10, device="cuda", dtype=dtype)
    case.x = wide[:, :, 2:7].transpose(0, 1).detach().requires_grad_()
    for weights in (torch.randn(6, 4, 48, device="cuda", dtype=dtype).transpose(0, 1), torch.randn(4, 6, 48).to(wide)):
        arriving = weights[:, :, 24:]
        found = []
        for backend in ("loop", "cuda"):
            outputs = case.scan(backend=backend).outputs
            found.append(torch.autograd.grad(outputs, [case.x, *case.weights.values()], arriving))
        for got, expected in zip(found[1], found[0], strict=True):
            close(got, expected, tolerance=1e-2 if dtype == torch.float32 else None)


def test_weights_that_begin_anywhere() -> None:
    """Parameters that are parts of one buffer, as flattened ones are."""
    case = on_gpu("lstm", 4, 6, 5, 64, dtype=torch.float32)
    expected = case.scan(backend="cuda").outputs
    for name, w in list(case.weights.items()):
        flat = torch.empty(w.numel() + 1, device="cuda")
        flat[1:] = w.detach().reshape(-1)
        case.weights[name] = flat[1:].view_as(w).requires_grad_()
    found = case.scan(backend="cuda").outputs
    assert torch.equal(found, expected)
    found.sum().backward()


def test_steps_that_come_again() -> None:
    """From the second time on a graph, of what then lies there."""
    case = on_gpu("lstm", 6, 11, 5, 24)
    graph_cache.cache_clear()
    for _ in range(5):
        with torch.no_grad():
            for part in (case.x, *case.weights.values()):
                part.mul_(0.95)
        agrees(case)
    assert len(graph_cache(0)._graphs) >= 2  # forward and backward pass
