"""Private names of PyTorch that recur uses, in one place: a new version of PyTorch is checked here.

Each entry says what PyTorch has no public name for.
"""

from __future__ import annotations

import torch
from torch.utils import _pytree

# Functions on nested tuples of tensors; other leaves (None) stay as they are.
tree_map_only = _pytree.tree_map_only
tree_leaves = _pytree.tree_leaves

# In-place linear interpolation of a list of tensors, in one call.
foreach_lerp_ = torch._foreach_lerp_


def float32_precision(backend: str) -> str:
    """Return how float32 products are computed on the GPU by "matmul" or "rnn": "ieee", "tf32" or "none" (default).

    The public attribute raises an error when an older switch was set before; this function does not.
    """
    return str(torch._C._get_fp32_precision_getter("cuda", backend))


def set_float32_precision(backend: str, precision: str) -> None:
    torch._C._set_fp32_precision_setter("cuda", backend, precision)


def has_bfloat16_instructions() -> bool:
    """Return True if the CPU multiplies bfloat16 in hardware; without it, bfloat16 is slower than float32."""
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # not in every build
    return bool(supported is not None and supported())


def allow_uncaptured_steps(optimizer: torch.optim.Optimizer) -> None:
    """Silence the warning of a capturable optimizer that also takes steps outside of a CUDA graph."""
    vars(optimizer)["_warned_capturable_if_run_uncaptured"] = True
