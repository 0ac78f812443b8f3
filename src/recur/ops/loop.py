"""Backend `loop`, the definition of scan: one call of the cell's step per time step, in plain PyTorch.

Kernels have first derivatives only. For a backward pass that is itself differentiated (`create_graph=True`), the loop
repeats the forward pass, and autograd differentiates its operations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from recur.cells.cell import Cell, State, Weights
from recur.cells.contract import check_step, versions_of
from recur.errors import BackendError
from recur.ops.call import FinalStates, ScaleGradient, ScaleTangent, ScanCall, StepXi, split_inputs
from recur.ops.trace import Trace


def computes_in(dtype: torch.dtype) -> torch.dtype:
    return dtype


def unsupported_reason(call: ScanCall) -> str | None:
    return None


def run(call: ScanCall) -> tuple[Tensor, State]:
    cell, weights, clip, mask, trace = call.cell, call.weights, call.bptt.clip, call.mask, call.trace
    x_of, h_of, s_of, i_of = (cell.tuple_of(role)._make for role in "xhsi")
    own = cell.tuple_of("w")._make(weights[name] for name in cell.extras)
    R = len(cell.recurrent_gates)
    units = weights["weight_hr"].shape[1] if "weight_hr" in weights else None

    # U x_t + b for all steps in one matmul. split and not indexing: its gradient is concatenated once.
    shares: Sequence[Tensor | None] = [None] * len(call.sizes)
    if not cell.multiplies_inside:
        share_of_all = linear(call.data, weights["weight_ih"], weights.get("bias_ih"))
        if trace.wanted:
            share_of_all = trace.record_term("weight_ih", share_of_all, call.data)
        shares = share_of_all.split(call.sizes)

    state: Sequence[Tensor] = call.state
    finals = FinalStates()
    outputs: list[Tensor] = []
    h = h_of(()) if not R else h_of([call.x] * R)  # placeholder until the first recurrent projection
    taken = 0
    for share, own_inputs, n, xi in zip(shares, split_inputs(call), call.sizes, call.edges, strict=True):
        if n < state[0].shape[0]:
            state = finals.end(state, still=n)
        if clip is not None or xi is not None:
            state = _carried(state, xi, clip)
        s = s_of(state)
        if share is None:
            factor = cell.multiplied_input(i_of(own_inputs), s, own)
            share = linear(factor, weights["weight_ih"], weights.get("bias_ih"))
            if trace.wanted:
                share = trace.record_term("weight_ih", share, factor, first=taken)
        x = x_of((*cell.split(share), *own_inputs))
        if R:
            before = cell.multiplied(x, s, own)
            if mask is not None:
                before = before * mask[:n]
            product = cell.product(before, weights)
            if trace.wanted:
                product = trace.record_term("weight_hh", product, before, first=taken)
            h = h_of(product.chunk(R, dim=-1))
        versions = None if outputs or torch.compiler.is_compiling() else versions_of(s)
        state = cell.advance(x, h, s, own)
        if versions is not None:
            check_step(cell, state, s, versions, units)
        if units is not None:
            state = cell.projected(state, weights)
        if trace.wanted:
            state = trace.record_states(state, s, first=taken)
            taken += n
        outputs.append(cell.output(state))
    return torch.cat(outputs), finals.all(state)


def _carried(state: Sequence[Tensor], xi: StepXi, clip: float | None) -> Sequence[Tensor]:
    """Return the states unchanged; the backward pass multiplies their gradient by ξ and clips it."""
    if isinstance(xi, float) and xi == 0:
        return [part.detach() for part in state]
    if torch.compiler.is_compiling():  # which traces a function of one tensor, without its forward-mode derivative
        whole: Tensor = ScaleGradient.apply(xi, clip, torch.cat(list(state), dim=-1))[0]
        parts: State = whole.split([part.shape[-1] for part in state], dim=-1)
        return parts
    carried: State = ScaleTangent.apply(xi, clip, *state)
    return carried


def differentiate_by_loop(
    call: ScanCall,
    cell: Cell,
    weights: Weights,
    data: Tensor,
    start: State | None,
    arriving: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Return the gradients of data (N, D) in packed order, of the weights, the initial states and the step inputs.

    arriving  the gradients of the outputs (N, H), in packed order, and of the final states
    wanted    which gradients are needed; the others are None
    """
    if call.bptt.clip is not None:
        # Clipping applies to the sum of the gradients through the loop and through the kernel; neither has the sum.
        raise BackendError("a clipped backward pass that is itself recorded needs one loop; take backend='loop'")
    with torch.enable_grad():
        # Views, so that each argument has its own autograd node even if two arguments are the same tensor.
        given = [t.view_as(t) for t in (data, *weights.values(), *(start or ()), *call.step_inputs)]
        trace = Trace(call.trace._cell, call.x, call.packing)
        outputs, final = run(replace_tensors(dataclasses.replace(call, cell=cell, trace=trace), list(weights), given))
        found = selected_gradients((outputs, *final), arriving, given, wanted, create_graph=True)
    if found is None:
        return [None] * len(wanted)
    call.trace.take(trace)
    return found


def replace_tensors(call: ScanCall, names: Sequence[str], tensors: Sequence[Tensor]) -> ScanCall:
    """Return the call with other tensors: data, weights by name, the states to start from, and the step inputs."""
    weights = dict(zip(names, tensors[1:], strict=False))
    rest = tuple(tensors[1 + len(weights) :])
    count = len(rest) - len(call.step_inputs)
    again = dataclasses.replace(call, weights=weights, start=rest[:count] or None, step_inputs=rest[count:])
    again.data = tensors[0]
    return again


def selected_gradients(
    results: Sequence[Tensor],
    arriving: Sequence[Tensor | None],
    given: Sequence[Tensor],
    wanted: Sequence[bool],
    **options: bool,
) -> list[Tensor | None] | None:
    """Return the wanted gradients of the given tensors, None for the others; None if truncation removed all."""
    pairs = [
        (result, gradient)
        for result, gradient in zip(results, arriving, strict=True)
        if gradient is not None and result.requires_grad
    ]
    if not pairs:
        return None
    asked = [t for t, want in zip(given, wanted, strict=True) if want]
    reached, gradients = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(reached, asked, gradients, allow_unused=True, **options))
    return [next(found) if want else None for want in wanted]
