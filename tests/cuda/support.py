"""What the tests of the GPU share: cases on it, and their comparison with the loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from recur.cells import make_cell
from tests.support import Case, close, in_double

needs_gpu = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]

TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-5}
"""Relative to the largest number compared, or to 1, with exact products."""
TF32 = 1e-2
"""The same with products of TF32."""
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def on_gpu(
    name: str, *sizes: int, P: int = 0, dtype: Any = torch.float64, bias: bool = True, scale: float = 1.0
) -> Case:
    """A case on the GPU whose numbers any dtype holds exactly enough: drawn in float64 by a fixed seed."""
    torch.manual_seed(sum(sizes))
    case = Case(name, *sizes, P=P)
    # Large layers add up many numbers: their weights are smaller, so that gates do not all saturate.
    H = sizes[3]
    factor = scale * min(1.0, 4 / H**0.5)

    def moved(t: Tensor, by: float = 1.0) -> Tensor:
        return (t.detach() * by).to("cuda", dtype).requires_grad_()

    if name == "indrnn":  # beyond 1 its states grow with every step, past what float32 has a square of
        case.weights = {
            key: w / max(1.0, float(w.detach().abs().max())) if w.dim() == 1 else w for key, w in case.weights.items()
        }
    case.cell = make_cell(name)
    case.x = moved(case.x)
    case.weights = {
        key: moved(w, factor if key.startswith("weight") else 1.0)
        for key, w in case.weights.items()
        if bias or not key.startswith("bias_")
    }
    case.state = tuple(map(moved, case.state))
    case.on_outputs = case.on_outputs.to("cuda", dtype)
    case.on_state = [part.to("cuda", dtype) for part in case.on_state]
    return case


def everything(case: Case, backend: str, trace: bool = True, **options: Any) -> dict[str, Tensor]:
    """All that a scan gives, norms of the carried gradients and of the terms of ∂L/∂W among it."""
    result = case.scan(backend=backend, trace=trace, **options)
    found = case.everything(lambda: result)
    if trace:
        found |= {f"norm {name}": norms for name, norms in result.trace.norms.items()}
        found |= {f"term {name}": norms for name, norms in result.trace.terms.items()}
    return found


def agrees(case: Case, *, exact: bool = True, trace: bool = True, **options: Any) -> None:
    """With the loop in float64 on the same numbers. `exact`: products of float32 in float32, not in TF32.

    In 16 bits: at most three times as far from it as the loop in the same dtype is, in the mean square, but for a few
    roundings of the largest number. The largest of some errors is a matter of luck, above all at a kink.
    """
    doubled = {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in options.items()}
    true = everything(in_double(case), "loop", trace, **doubled)
    was = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = not exact
    try:
        got = everything(case, "cuda", trace, **options)
    finally:
        torch.backends.cudnn.allow_tf32 = was
    dtype = case.x.dtype
    loop = everything(case, "loop", trace, **options) if dtype in ROUNDING else true
    for name, value in true.items():
        assert got[name].dtype == dtype, name
        if dtype not in ROUNDING:
            close(got[name].double(), value, name, TOLERANCE[dtype] if exact else TF32)
            continue
        ours, theirs = ((found[name].double() - value).square().mean().sqrt().item() for found in (got, loop))
        allowed = 3 * theirs + 2 * ROUNDING[dtype] * value.abs().max().item()
        assert ours <= allowed, f"{name}: off by {ours:.3g}, and the loop by {theirs:.3g}"
