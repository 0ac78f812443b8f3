"""Backward passes that are themselves differentiated (`create_graph=True`).

Kernels have first derivatives only. So the loop repeats the forward pass, and autograd differentiates its operations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from recur.cells.cell import Cell, State, Weights
from recur.errors import BackendError
from recur.ops import loop
from recur.ops.call import ScanCall
from recur.ops.trace import Trace


def differentiate_by_loop(
    call: ScanCall,
    cell: Cell,
    weights: Weights,
    data: Tensor,
    start: State | None,
    arriving: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Return the gradients of data (N, D) in packed order, of the weights and of the initial states.

    arriving  the gradients of the outputs (N, H), in packed order, and of the final states
    wanted    which gradients are needed; the others are None
    """
    if call.bptt.clip is not None:
        # Clipping applies to the sum of the gradients through the loop and through the kernel; neither has the sum.
        raise BackendError("a clipped backward pass that is itself recorded needs one loop; take backend='loop'")
    with torch.enable_grad():
        # Views, so that each argument has its own autograd node even if two arguments are the same tensor.
        given = [t.view_as(t) for t in (data, *weights.values(), *(start or ()))]
        trace = Trace(call.trace._cell, call.x, call.packing)
        again = dataclasses.replace(
            call,
            cell=cell,
            weights=dict(zip(weights, given[1:], strict=False)),
            start=None if start is None else tuple(given[1 + len(weights) :]),
            trace=trace,
        )
        again.data = given[0]
        outputs, final = loop.run(again)
        pairs = [
            (result, gradient)
            for result, gradient in zip((outputs, *final), arriving, strict=True)
            if gradient is not None and result.requires_grad
        ]
        asked = [t for t, want in zip(given, wanted, strict=True) if want]
        if not pairs:  # truncation removed all gradients
            return [None] * len(wanted)
        results, gradients = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(results, asked, gradients, create_graph=True, allow_unused=True))
    call.trace.take(trace)
    return [next(found) if want else None for want in wanted]
