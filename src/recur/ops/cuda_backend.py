"""Any pointwise cell on the GPU: kernels printed from its program, compiled when they are first needed."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from recur.cells.cell import State
from recur.compiler import program_text
from recur.compiler.signature import Signature, make_signature
from recur.ops import operator, torch_backend
from recur.ops.call import Call
from recur.ops.cpu import operators
from recur.ops.cuda import dispatch as on_gpu
from recur.ops.cuda.layout import uses_tf32 as uses_tf32

name = "cuda"

operators.IMPLEMENTATIONS["cuda"] = on_gpu


def computes_in(dtype: torch.dtype) -> torch.dtype:
    """Numbers of 16 bits stay so in memory, and what is multiplied; sums and states are in float32."""
    return dtype


def unsupported_reason(call: Call) -> str | None:
    if call.x.device.type != "cuda":
        return f"it runs on a GPU, and x is on {call.x.device}"
    if call.x.dtype not in on_gpu.DTYPES:
        return f"it knows float32, float64, bfloat16 and float16, and x is {str(call.x.dtype).removeprefix('torch.')}"
    reason = operator.no_gradient_for_mask(call) or _missing(call.x.device.index)
    return reason or program_text.not_compiled(call.cell, call.x, "bias_ih" in call.weights)


@program_text.constant_when_compiled
def _missing(index: int) -> str | None:
    return on_gpu.missing_reason(index)


SLOWER = 1.05
"""Times cuDNN's time: beyond, `auto` leaves it the cells that it has."""


def slower_reason(call: Call) -> str | None:
    """Why `auto` should rather take PyTorch's own layer, where that can run the call; None where it should not."""
    if call.packing is not None or torch.compiler.is_compiling() or torch_backend.unsupported_reason(call) is not None:
        return None
    text, given, extras = program_text.operands(call.cell, call.weights)
    of, tensors = make_signature(call.x, given, extras, call.start or (), None, None, None, 0.0, text, "")
    train = torch.is_grad_enabled() and any(part.requires_grad for part in tensors)
    ratio = on_gpu.time_relative_to_cudnn(of._replace(dtype=call.dtype), call.x.device.index, train)
    if ratio is None or ratio <= SLOWER:
        return None
    return f"cuDNN is faster here: this takes {ratio:.2f} times as long, by the table of this GPU"


def run(call: Call) -> tuple[Tensor, State]:
    return operator.run(call, way=functools.partial(way, call.x.device.index, call.trace.wanted))


def can_go_together(of: Signature, index: int, recorded: bool) -> bool:
    """Whether one launch carries scans of this form from both ends."""
    return on_gpu.can_go_together(of, index, recorded)


def way_of_both(index: int, of: Signature, recorded: bool) -> str:
    with on_gpu.on_device(torch.device("cuda", index)):
        return "both directions at once; " + on_gpu.describe(of, index, recorded, False, 2)


def way(index: int, traced: bool, of: Signature, recorded: bool) -> str:
    """How the steps of such a scan are carried on a GPU, and back, if autograd recorded it."""
    with on_gpu.on_device(torch.device("cuda", index)):
        return on_gpu.describe(of, index, recorded, traced)
