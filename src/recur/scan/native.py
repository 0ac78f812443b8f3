"""Any pointwise cell on the CPU at the speed of a hand-written kernel: the C++ core."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from recur.cells.cell import State
from recur.native import compiled
from recur.scan.call import Call

name = "native"


def unsupported_reason(call: Call) -> str | None:
    if call.mask is not None and call.mask.requires_grad and torch.is_grad_enabled():
        return "it gives no gradient to the mask, which requires one"
    return compiled.unsupported_reason(call.cell, call.x, "bias_ih" in call.weights)


def run(call: Call) -> tuple[Tensor, State]:
    from recur.native import operators

    text, given, extras = compiled.operands(call.cell, call.weights)
    batch_major = call.packing is None
    data = call.x.reshape(-1, call.x.shape[-1]) if batch_major else call.data
    xi = call.xi
    if xi is not None and batch_major:
        xi = xi.view(len(call.sizes), -1).t().contiguous()
    record = functools.partial(call.trace.record_pass, batch_major=batch_major) if call.trace.wanted else None
    options = (call.mask, xi, call.sizes, batch_major, call.bptt.clip or 0.0, text)
    outputs, *rest = operators.scan_op(record, data, given, extras, list(call.start or ()), *options)
    if batch_major:
        outputs = outputs.view(*call.x.shape[:2], -1)
    return outputs, tuple(rest[: len(call.cell.states)])
