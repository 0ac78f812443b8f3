"""One step of a network at a time, for use: sampling and serving call this once a token.

The same numbers as `Recurrent.forward` in evaluation mode. Nothing is checked, recorded or kept for a way back, which
is most of what a single step of a scan costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from recur.errors import OptionError

if TYPE_CHECKING:
    from recur.layers.recurrent import Recurrent


@torch.no_grad()
def one_step(net: Recurrent, x: Tensor, state: Sequence[Any] | None) -> tuple[Tensor, tuple[Any, ...]]:
    if net.bidirectional:
        raise OptionError("a network that reads from both ends cannot take one step at a time")
    cell = net.cell
    x_of, h_of, s_of, w_of = (cell.tuple_of(role)._make for role in "xhsw")
    G, R = len(cell.gates), len(cell.recurrent_gates)
    bottom = x if net.input_mlp is None else net.input_mlp(x)
    below, every, finals = bottom, [], []
    for layer in range(net.layers):
        weights = net.weights(f"_l{layer}")
        own = w_of(weights[name] for name in cell.extras)
        before = state[layer] if state is not None else _start(net, f"_l{layer}", x)
        inputs = torch.cat([below, bottom], dim=-1) if net.skip and layer else below
        share = linear(inputs, weights["weight_ih"], weights.get("bias_ih")).chunk(G, dim=-1)
        products: Sequence[Tensor] = ()
        if R:
            multiplied = cell.multiplied(before, own)
            products = linear(multiplied, weights["weight_hh"], weights.get("bias_hh")).chunk(R, dim=-1)
        after = s_of(cell.advance(x_of(share), h_of(products), before, own))
        below = after[0] + below if net.residual and layer else after[0]
        every.append(below)
        finals.append(after)
    outputs = torch.cat(every, dim=-1) if net.skip else below
    return outputs if net.output_mlp is None else net.output_mlp(outputs), tuple(finals)


def _start(net: Recurrent, suffix: str, x: Tensor) -> Any:
    if net.initial == "learned":
        return net.cell.state([getattr(net, f"{name}0{suffix}").expand(len(x), -1) for name in net.cell.states])
    return net.cell.state([x.new_zeros(len(x), net.hidden_size) for _ in net.cell.states])
