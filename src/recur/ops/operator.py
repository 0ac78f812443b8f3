"""A call of the operator `recur::scan`: what the backends that run a cell's program have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from recur.cells.cell import State
from recur.compiler import program_text
from recur.compiler.signature import Signature, make_signature
from recur.ops.call import Call
from recur.ops.cpu import operators
from recur.ops.recorded import gradients_by_loop


def no_gradient_for_mask(call: Call) -> str | None:
    if call.mask is not None and call.mask.requires_grad and torch.is_grad_enabled():
        return "it gives no gradient to the mask, which requires one"
    return None


def run(call: Call, products: str = "", way: Callable[[Signature, bool], str] | None = None) -> tuple[Tensor, State]:
    """`products`: what they read, if not the numbers as they are. `way` says how steps are carried, for the trace."""
    text, given, extras = program_text.operands(call.cell, call.weights)
    data, sizes, xi = call.x, None, call.xi
    if call.packing is not None:
        data, sizes = call.data, call.sizes
    elif xi is not None:
        B, T, _ = data.shape
        xi = xi.view(T, B).t().contiguous()
    record = functools.partial(_record, call) if call.trace.wanted else None
    again = functools.partial(by_loop, call)
    options = (call.mask, xi, sizes, call.bptt.clip or 0.0, text, products)
    of, tensors = make_signature(data, given, extras, call.start or (), *options)
    if way is not None and not torch.compiler.is_compiling():
        call.trace.say_way(functools.partial(way, of, operators.is_recorded(tensors)))
    results = operators.scan_op(record, again, of, tensors)
    count = len(call.cell.outputs) or 1
    outputs = results[0] if count == 1 else torch.cat(list(results[:count]), dim=-1)
    if record is not None:
        factors = {"weight_ih": call.data}
        if call.cell.recurrent_gates:
            factors["weight_hh"] = _multiplied(call, results[call.cell.output_states.index(0)])
        call.trace.record_factors(factors)
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
        else rows.reshape(call.sizes[0], len(call.sizes), -1).transpose(0, 1).flatten(0, 1)
    )


def _multiplied(call: Call, outputs: Tensor) -> Tensor:
    """What W multiplies at every step: the first state of the step before."""
    states = _packed(call, outputs.detach()).split(call.sizes)
    before = [call.state[0], *(part[:n] for part, n in zip(states, call.sizes[1:], strict=False))]
    if call.mask is not None:
        before = [part * call.mask[: len(part)] for part in before]
    return torch.cat(before)


def by_loop(
    call: Call,
    arriving: Sequence[Tensor | None],
    data: Tensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Tensor],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of the operator's own arguments, by operations of PyTorch that have derivatives."""
    cell, names = program_text.as_read(call.cell, call.weights)
    named = dict(zip(names, (*weights, *extras), strict=True))
    count = len(call.cell.output_states)
    of_outputs = _side_by_side(arriving[:count])
    arriving = [of_outputs if of_outputs is None else _packed(call, of_outputs), *arriving[count:]]
    found = gradients_by_loop(call, cell, named, _packed(call, data), tuple(state) or None, arriving, wanted)
    of_data = found[0]
    if call.packing is None and of_data is not None:  # row after row again
        found[0] = of_data.view(len(call.sizes), call.sizes[0], -1).transpose(0, 1)
    return found


def _side_by_side(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Gradients of several outputs, zero where none came."""
    like = next((part for part in parts if part is not None), None)
    if like is None or len(parts) == 1:
        return like
    return torch.cat([torch.zeros_like(like) if part is None else part for part in parts], dim=-1)
