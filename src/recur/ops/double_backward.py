"""A backward pass that is itself recorded (`create_graph=True`): kernels have first derivatives only, so the loop takes
the same steps again and its operations are differentiated, as often as is asked."""

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
    """Of data (N, D) in packed order, of the weights, and of the states to start from, as far as they are wanted.

    arriving  the gradients of the outputs (N, H), in packed order, and of the final states
    """
    if call.bptt.clip is not None:
        # What is clipped in the second pass is what arrives over both ways, here and by the kernel, together.
        raise BackendError("a clipped backward pass that is itself recorded needs one loop; take backend='loop'")
    with torch.enable_grad():
        # A node of its own for each: two arguments may be one tensor.
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
        if not pairs:  # all that arrives was cut off on the way
            return [None] * len(wanted)
        results, gradients = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(results, asked, gradients, create_graph=True, allow_unused=True))
    call.trace.take(trace)
    return [next(found) if want else None for want in wanted]
