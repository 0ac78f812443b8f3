"""The definition of a scan: a cell's step, once for every step, in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from recur.cells.cell import check_step
from recur.scan.call import Call, Carry, Finals

name = "loop"


def refuses(call: Call) -> str | None:
    return None


def run(call: Call) -> tuple[Tensor, tuple[Tensor, ...]]:
    cell, weights = call.cell, call.weights
    x_of, h_of, s_of = (cell.tuple_of(role)._make for role in "xhs")
    own = cell.tuple_of("w")._make(weights[name] for name in cell.extras)
    G, R = len(cell.gates), len(cell.recurrent_gates)
    U, b_h = weights.get("weight_hh"), weights.get("bias_hh")

    # W x_t + b for all steps at once; split, not indexed, so that its gradient is put together once too.
    shares = linear(call.data, weights["weight_ih"], weights.get("bias_ih")).split(call.sizes)

    state: Sequence[Tensor] = call.state
    mask = call.mask
    finals = Finals()
    outputs = []
    taken = 0
    for t, (share, n, xi) in enumerate(zip(shares, call.sizes, call.edges(), strict=True)):
        state = finals.end(state, still=n)
        state = _carried(state, xi, call.clip)
        s = s_of(state)
        products: Sequence[Tensor] = ()
        if U is not None:
            before = cell.multiplied(s, own)
            if mask is not None:
                before = before * mask[:n]
            products = linear(before, U, b_h).chunk(R, dim=-1)
        state = cell.advance(x_of(share.chunk(G, dim=-1)), h_of(products), s, own)
        if t == 0:
            check_step(cell, state, s)
        if call.trace.wanted:
            state = call.trace.watch(state, cell.states, first=taken)
        outputs.append(state[0])
        taken += n
    return torch.cat(outputs), finals.all(state)


def _carried(state: Sequence[Tensor], xi: float | Tensor, clip: float | None) -> Sequence[Tensor]:
    """The same states, with ξ and the bound on what is carried waiting for the way back."""
    if isinstance(xi, float):
        if xi == 0:
            return [part.detach() for part in state]
        if xi == 1 and clip is None:
            return state
    carried: tuple[Tensor, ...] = Carry.apply(xi, clip, *state)
    return carried
