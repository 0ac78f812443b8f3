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
    if "weight_hr" in call.weights:
        return "it has no projection"
    return compiled.unsupported_reason(call.cell, call.x, "bias_ih" in call.weights)


def run(call: Call) -> tuple[Tensor, State]:
    from recur.native import operators

    text, given, extras = compiled.operands(call.cell, call.weights)
    batch_major = call.packing is None
    data = call.x.reshape(-1, call.x.shape[-1]) if batch_major else call.data
    xi = call.xi
    if xi is not None and batch_major:
        xi = xi.view(len(call.sizes), -1).t().contiguous()
    record = functools.partial(_record, call) if call.trace.wanted else None
    options = (call.mask, xi, call.sizes, batch_major, call.bptt.clip or 0.0, text)
    results = operators.scan_op(record, data, given, extras, list(call.start or ()), *options)
    count = len(call.cell.output_states)
    outputs = results[0] if count == 1 else torch.cat(results[:count], dim=-1)
    if record is not None:
        factors = {"weight_ih": call.data}
        if call.cell.recurrent_gates:
            factors["weight_hh"] = _multiplied(call, results[call.cell.output_states.index(0)])
        call.trace.record_factors(factors)
    if batch_major:
        outputs = outputs.view(*call.x.shape[:2], -1)
    return outputs, tuple(results[count : count + len(call.cell.states)])


def _record(call: Call, found: list[Tensor]) -> None:
    """What the core recorded of a backward pass, in packed order."""
    names, packed = call.cell.states, [_packed(call, part) for part in found]
    slopes = dict(zip(("weight_ih", "weight_hh"), packed[len(names) :], strict=True))
    if not call.cell.recurrent_gates:
        del slopes["weight_hh"]
    call.trace.record_pass(dict(zip(names, packed, strict=False)), slopes)


def _packed(call: Call, rows: Tensor) -> Tensor:
    """Step after step, where the core had row after row."""
    return (
        rows
        if call.packing is not None
        else rows.view(call.sizes[0], len(call.sizes), -1).transpose(0, 1).flatten(0, 1)
    )


def _multiplied(call: Call, outputs: Tensor) -> Tensor:
    """What W multiplies at every step: the first state of the step before."""
    states = _packed(call, outputs.detach()).split(call.sizes)
    before = [call.state[0], *(part[:n] for part, n in zip(states, call.sizes[1:], strict=False))]
    if call.mask is not None:
        before = [part * call.mask[: len(part)] for part in before]
    return torch.cat(before)
