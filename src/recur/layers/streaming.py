"""One step of a network at a time, for use: sampling and serving call this once a token.

The same numbers as `Recurrent.forward` in evaluation mode. Nothing is recorded or kept for a way back, which is most of
what a single step of a scan costs. Where the C++ core can run a plain stack of layers it does, on weights that it
packed once and packs again when they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.optim.optimizer import register_optimizer_step_post_hook

from recur.errors import DeviceError, DtypeError, ShapeError
from recur.native import compiled
from recur.native.stack import NativeStack

if TYPE_CHECKING:
    from recur.layers.recurrent import Recurrent


@torch.no_grad()
def one_step(net: Recurrent, x: Tensor, state: Sequence[Any] | None) -> tuple[Tensor, tuple[Any, ...]]:
    _check(net, x, state)
    stack = _stack(net, x)
    if stack is not None:
        return _native_step(net, stack, x, state)
    cell = net.cell
    x_of, h_of, s_of, w_of = (cell.tuple_of(role)._make for role in "xhsw")
    G, R = len(cell.gates), len(cell.recurrent_gates)
    bottom = x if net.input_mlp is None else net.input_mlp(x)
    below, every, finals = bottom, [], []
    for layer in range(net.layers):
        weights = net.weights(f"_l{layer}")
        own = w_of(weights[name] for name in cell.extras)
        before = state[layer] if state is not None else _start(net, f"_l{layer}", x)
        inputs = torch.cat([below, bottom], dim=-1) if net.connections.skip and layer else below
        share = linear(inputs, weights["weight_ih"], weights.get("bias_ih")).chunk(G, dim=-1)
        products: Sequence[Tensor] = ()
        if R:
            multiplied = cell.multiplied(before, own)
            products = linear(multiplied, weights["weight_hh"], weights.get("bias_hh")).chunk(R, dim=-1)
        after = s_of(cell.advance(x_of(share), h_of(products), before, own))
        below = after[0] + below if net.connections.residual and layer else after[0]
        every.append(below)
        finals.append(after)
    outputs = torch.cat(every, dim=-1) if net.connections.skip else below
    return outputs if net.output_mlp is None else net.output_mlp(outputs), tuple(finals)


class Stream:
    """A network that reads one step after another and keeps its own state: nothing is allocated between two steps.

    `step` returns a tensor of the stream's own, which the call after the next writes over.
    """

    def __init__(self, net: Recurrent, rows: int = 1, state: Sequence[Any] | None = None) -> None:
        self.net, self.rows = net, rows
        weight = next(net.parameters())
        self._like = weight.new_zeros(rows, net.input_size)
        self._sides: list[list[Any]] = [[], []]
        for side in self._sides:
            for layer in range(net.layers):
                started = _start(net, f"_l{layer}", self._like)
                side.append(net.cell.state([part.detach().clone() for part in started]))
        if state is not None:
            self._go_on_from(state)

    @property
    def state(self) -> tuple[Any, ...]:
        """The state, layer by layer; give one to go on from it."""
        return tuple(self.net.cell.state([part.clone() for part in layer]) for layer in self._sides[0])

    @state.setter
    def state(self, given: Sequence[Any]) -> None:
        self._go_on_from(given)

    def _go_on_from(self, given: Sequence[Any]) -> None:
        _check_state(self.net, self._like, given)
        for mine, theirs in zip(self._sides[0], given, strict=True):
            for part, new in zip(mine, theirs, strict=True):
                part.copy_(new)

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """(rows, D) → (rows, output_size)."""
        if x.shape != self._like.shape:
            raise ShapeError(f"this stream reads {tuple(self._like.shape)}, got {tuple(x.shape)}")
        if x.dtype != self._like.dtype:
            raise DtypeError(f"this stream was begun in {self._like.dtype}, got x of {x.dtype}; begin another one")
        stack = _stack(self.net, x)
        if stack is None:
            outputs, state = one_step(self.net, x, self._sides[0])
            self._go_on_from(state)
            return outputs
        before, after = self._sides
        stack.step(x.contiguous(), before, after)
        self._sides.reverse()
        written: Tensor = after[-1][0]
        return written


def _check(net: Recurrent, x: Tensor, state: Sequence[Any] | None) -> None:
    who, weight = type(net.cell).__name__, next(net.parameters())
    if x.dim() != 2 or x.shape[1] != net.input_size:
        raise ShapeError(f"{who}: one step takes x of (B, D={net.input_size}), got {tuple(x.shape)}")
    if x.dtype != weight.dtype:
        raise DtypeError(f"{who}: x is {x.dtype} and the network {weight.dtype}; convert x with x.to({weight.dtype})")
    if x.device != weight.device:
        raise DeviceError(f"{who}: x is on {x.device} and the network on {weight.device}")
    if state is not None:
        _check_state(net, x, state)


def _check_state(net: Recurrent, x: Tensor, state: Sequence[Any]) -> None:
    form = (len(x), net.hidden_size), x.dtype
    found = [[(tuple(part.shape), part.dtype) for part in parts] for parts in state]
    if found != [[form] * len(net.cell.states)] * net.layers:
        raise ShapeError(
            f"{type(net.cell).__name__}: state must be ({', '.join(net.cell.states)}) for each of {net.layers} layers, "
            f"each (B={len(x)}, H={net.hidden_size}) of {x.dtype}; got {found}"
        )


_STACKS: WeakKeyDictionary[Any, tuple[Any, NativeStack | None]] = WeakKeyDictionary()
_optimised = 0
"""How many steps optimizers have taken, all of them together."""


def _after_a_step_of_any_optimizer(*_: Any) -> None:
    """A fused optimizer changes weights without counting it among their versions."""
    global _optimised
    _optimised += 1


register_optimizer_step_post_hook(_after_a_step_of_any_optimizer)


def _stack(net: Recurrent, x: Tensor) -> NativeStack | None:
    """The network as the core runs it, if it can; packed anew when a weight has changed."""
    joined = net.connections.skip or net.connections.residual
    if joined or net.input_mlp or net.output_mlp or net.backend not in ("auto", "native"):
        return None
    # A tensor's version counts its changes in place; its address changes when it is replaced. Without modules inside,
    # the network's own dictionary holds all weights, and reading it costs a fraction of what asking for them does.
    weights = net.parameters() if net._modules else net._parameters.values()
    stamps = [(weight._version, weight.data_ptr()) for weight in weights if weight is not None]
    stamp = [_optimised, len(x), x.dtype, compiled.assembled(net.cell, net.bias), torch.get_num_threads(), stamps]
    kept = _STACKS.get(net)
    if kept is None or kept[0] != stamp:
        _check(net, x, None)
        able = compiled.unsupported_reason(net.cell, x, net.bias) is None
        layers = [net.weights(f"_l{layer}") for layer in range(net.layers)]
        kept = _STACKS[net] = stamp, NativeStack(net.cell, layers, len(x)) if able else None
    return kept[1]


def _native_step(net: Recurrent, stack: NativeStack, x: Tensor, state: Any) -> tuple[Tensor, tuple[Any, ...]]:
    after = [[x.new_empty(len(x), net.hidden_size) for _ in net.cell.states] for _ in range(net.layers)]
    if state is None:
        state = [_start(net, f"_l{layer}", x) for layer in range(net.layers)]
    before = [[part.contiguous() for part in layer] for layer in state]
    stack.step(x.contiguous(), before, after)
    return after[-1][0], tuple(map(net.cell.state, after))


def _start(net: Recurrent, suffix: str, x: Tensor) -> Any:
    if net.init.learned:
        return net.cell.state([getattr(net, f"{name}0{suffix}").expand(len(x), -1) for name in net.cell.states])
    return net.cell.state([x.new_zeros(len(x), net.hidden_size) for _ in net.cell.states])
