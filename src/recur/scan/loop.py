"""The definition of a scan: a cell's step, once for every step, in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from recur.cells.cell import State
from recur.cells.contract import check_step
from recur.scan.call import Call, Carry, Edge, Finals

name = "loop"


def unsupported_reason(call: Call) -> str | None:
    return None


def run(call: Call) -> tuple[Tensor, State]:
    cell, weights, clip, mask = call.cell, call.weights, call.bptt.clip, call.mask
    x_of, h_of, s_of = (cell.tuple_of(role)._make for role in "xhs")
    own = cell.tuple_of("w")._make(weights[name] for name in cell.extras)
    G, R = len(cell.gates), len(cell.recurrent_gates)
    W, b_h = weights.get("weight_hh"), weights.get("bias_hh")
    record = call.trace.record if call.trace.wanted else None

    # U x_t + b for all steps at once. Split, not indexed, so that its gradient is put together once too.
    shares = linear(call.data, weights["weight_ih"], weights.get("bias_ih")).split(call.sizes)

    state: Sequence[Tensor] = call.state
    finals = Finals()
    outputs: list[Tensor] = []
    products: Sequence[Tensor] = ()
    taken = 0
    for share, n, xi in zip(shares, call.sizes, call.edges, strict=True):
        if n < state[0].shape[0]:
            state = finals.end(state, still=n)
        if clip is not None or xi is not None:
            state = _carried(state, xi, clip)
        s = s_of(state)
        if W is not None:
            before = cell.multiplied(s, own)
            if mask is not None:
                before = before * mask[:n]
            products = linear(before, W, b_h).chunk(R, dim=-1)
        versions = None if outputs else [part._version for part in s]
        state = cell.advance(x_of(share.chunk(G, dim=-1)), h_of(products), s, own)
        if versions is not None:
            check_step(cell, state, s, versions)
        if record is not None:
            state = record(state, cell.states, first=taken)
            taken += n
        outputs.append(state[0])
    return torch.cat(outputs), finals.all(state)


def _carried(state: Sequence[Tensor], xi: Edge, clip: float | None) -> Sequence[Tensor]:
    """The same states; in the backward pass their gradient is multiplied by ξ, and clipped."""
    if isinstance(xi, float) and xi == 0:
        return [part.detach() for part in state]
    carried: State = Carry.apply(xi, clip, *state)
    return carried
