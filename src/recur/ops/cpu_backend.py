"""Any pointwise cell on the CPU at the speed of a hand-written kernel: the C++ core."""

from __future__ import annotations

import torch
from torch import Tensor

from recur.cells.cell import State
from recur.ops import operator
from recur.ops.call import Call
from recur.ops.cpu import compiled

name = "native"


def computes_in(dtype: torch.dtype) -> torch.dtype:
    """Sums and states are in float32 where results of fewer bits are wanted, and products of bfloat16 in that."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def unsupported_reason(call: Call) -> str | None:
    if reason := operator.no_gradient_for_mask(call):
        return reason
    if call.products and computes_in(call.dtype) != torch.float32:
        return f"it converts numbers of float32, and x is {str(call.dtype).removeprefix('torch.')}"
    if call.products == "int8" and torch.is_grad_enabled():
        given = (call.x, *call.weights.values(), *(call.start or ()))
        if any(part.requires_grad for part in given):
            return "no gradient goes through 8-bit weights; call it under torch.no_grad()"
    return compiled.unsupported_reason(call.cell, call.x, computes_in(call.dtype), "bias_ih" in call.weights)


def run(call: Call) -> tuple[Tensor, State]:
    return operator.run(call, call.products or ("bfloat16" if call.dtype == torch.bfloat16 else ""))
