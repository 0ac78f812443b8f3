"""One step of a network at a time, for use: sampling and serving call this once a token.

The same numbers as `Recurrent.forward` in evaluation mode. Nothing is saved for a backward pass, which is most of what
a single step of a scan costs. Where the C++ core can run a plain stack of layers it does, on weights that it packed
once and packs again when they change: in place, by an optimizer, or by being replaced. Only a write that autograd does
not see either, through `weight.data` or NumPy, goes unnoticed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.optim.optimizer import register_optimizer_step_post_hook

from recur.cells.cell import Tensors
from recur.errors import BackendError, DeviceError, DtypeError, ShapeError
from recur.native import compiled
from recur.native.forks import in_child
from recur.native.stack import NativeStack, addresses
from recur.scan.check import check_products

if TYPE_CHECKING:
    from recur.layers.recurrent import Recurrent


States = Sequence[Sequence[Tensor]]
"""The states of every layer, (B, H) each."""


@torch.no_grad()
def one_step(net: Recurrent, x: Tensor, state: States | None) -> tuple[Tensor, tuple[Tensors, ...]]:
    _check(net, x, state)
    stack = stack_of(net, x, check_products(net.products))
    if stack is not None:
        return _native_step(net, stack, x, state)
    with torch.autocast(x.device.type, enabled=False):  # a stream's states keep their dtype
        return _plain_step(net, x, state)


def _plain_step(net: Recurrent, x: Tensor, state: States | None) -> tuple[Tensor, tuple[Tensors, ...]]:
    """In operations of PyTorch."""
    cell = net.cell
    x_of, h_of, s_of, w_of = (cell.tuple_of(role)._make for role in "xhsw")
    G, R = len(cell.gates), len(cell.recurrent_gates)
    bottom = x if net.input_mlp is None else net.input_mlp(x)
    below, every, finals = bottom, [], []
    for layer in range(net.layers):
        weights = net.weights(f"_l{layer}")
        own = w_of(weights[name] for name in cell.extras)
        before = s_of(state[layer]) if state is not None else _start(net, f"_l{layer}", x)
        inputs = torch.cat([below, bottom], dim=-1) if net.connections.skip and layer else below
        share = x_of(linear(inputs, weights["weight_ih"], weights.get("bias_ih")).chunk(G, dim=-1))
        products: Sequence[Tensor] = ()
        if R:
            products = cell.product(cell.multiplied(share, before, own), weights).chunk(R, dim=-1)
        after = s_of(cell.projected(cell.advance(share, h_of(products), before, own), weights))
        here = cell.output(after)
        below = here + below if net.connections.residual and layer else here
        every.append(below)
        finals.append(after)
    outputs = torch.cat(every, dim=-1) if net.connections.skip else below
    return outputs if net.output_mlp is None else net.output_mlp(outputs), tuple(finals)


class Stream:
    """A network that reads one step after another and holds its state in memory of its own."""

    def __init__(self, net: Recurrent, rows: int = 1, state: States | None = None, products: str | None = None) -> None:
        self.net, self.rows = net, rows
        self._products = net.products if products is None else check_products(products)
        weight = next(net.parameters())
        self._like = weight.new_zeros(rows, net.input_size)
        self._expected = self._like.shape, self._like.dtype, self._like.device
        # Two buffers: a step reads the first, writes the second, and swaps them.
        self._buffers: list[list[list[Tensor]]] = [[], []]
        for buffer in self._buffers:
            for layer in range(net.layers):
                buffer.append([part.detach().clone() for part in _start(net, f"_l{layer}", self._like)])
        self._addresses = [addresses(*self._buffers), addresses(*reversed(self._buffers))]
        if state is not None:
            self.state = state

    @property
    def state(self) -> tuple[Tensors, ...]:
        """A copy of the state, layer by layer; assign one to continue from it."""
        return tuple(self.net.cell.state([part.clone() for part in layer]) for layer in self._buffers[0])

    @state.setter
    @torch.no_grad()
    def state(self, given: States) -> None:
        _check_state(self.net, self._like, given)
        for layer, new in zip(self._buffers[0], given, strict=True):
            for part, value in zip(layer, new, strict=True):
                part.copy_(value)

    def step(self, x: Tensor) -> Tensor:
        """(rows, D) → (rows, output_size): a new tensor, which later steps leave as it is."""
        shape, dtype, device = self._expected
        if x.shape != shape:
            raise ShapeError(f"this stream reads {tuple(shape)}, got {tuple(x.shape)}")
        if x.dtype != dtype:
            raise DtypeError(f"this stream was begun in {dtype}, got x of {x.dtype}; begin another one")
        if x.device != device:
            raise DeviceError(f"this stream was begun on {device}, got x on {x.device}; begin another one")
        stack = stack_of(self.net, x, self._products)
        if stack is None:
            outputs, self.state = one_step(self.net, x, self._buffers[0])
            return outputs
        stack.step(x.contiguous(), self._addresses[0])
        self._buffers.reverse()
        self._addresses.reverse()
        return self._buffers[0][-1][0].clone()


def _check(net: Recurrent, x: Tensor, state: States | None) -> None:
    who, weight = type(net.cell).__name__, next(net.parameters())
    if x.dim() != 2 or x.shape[1] != net.input_size:
        raise ShapeError(f"{who}: one step takes x of (B, D={net.input_size}), got {tuple(x.shape)}")
    if x.dtype != weight.dtype:
        raise DtypeError(f"{who}: x is {x.dtype} and the network {weight.dtype}; convert x with x.to({weight.dtype})")
    if x.device != weight.device:
        raise DeviceError(f"{who}: x is on {x.device} and the network on {weight.device}")
    if state is not None:
        _check_state(net, x, state)


def _check_state(net: Recurrent, x: Tensor, state: States) -> None:
    expected = [((len(x), width), x.dtype) for width in net.state_widths]
    found = [[(tuple(part.shape), part.dtype) for part in parts] for parts in state]
    if found != [expected] * net.layers:
        raise ShapeError(
            f"{type(net.cell).__name__}: state must be ({', '.join(net.cell.states)}) for each of {net.layers} layers, "
            f"{' and '.join(f'(B={len(x)}, H={width})' for width in net.state_widths)} of {x.dtype}; got {found}"
        )


class _Packed(NamedTuple):
    """A network's weights as the core reads them, and how it was when they were packed."""

    stamp: list[object]
    stack: NativeStack | None
    """None where the core cannot run the network."""
    weights: list[Tensor]
    """Held, so that no other tensor can come to lie at the address of one that was replaced."""


_PACKED: WeakKeyDictionary[Recurrent, dict[str, _Packed]] = WeakKeyDictionary()
"""Of each network, by what products read."""
in_child(_PACKED.clear)  # another thread may have held the lock of one, which nobody would give back


class _OptimizerSteps:
    """Counts the steps of all optimizers, from when the first weights are packed on.

    A fused optimizer changes weights in place without increasing their version, and nothing else tells of it.
    """

    def __init__(self) -> None:
        self.count = 0
        self._watching = False

    def watch(self) -> None:
        if not self._watching:
            self._watching = True
            register_optimizer_step_post_hook(self._increment)

    def _increment(self, *_: object) -> None:
        self.count += 1


_OPTIMIZER_STEPS = _OptimizerSteps()


def stack_of(net: Recurrent, x: Tensor, products: str = "") -> NativeStack | None:
    """The network as the core runs it, if it can; packed again when a weight has changed."""
    joined = net.connections.skip or net.connections.residual or net.projection or net.cell.outputs
    if joined or net.input_mlp or net.output_mlp or net.backend not in ("auto", "native") or compiled.transformed():
        if products:
            raise _refusal(products, "it takes plain layers, one reading the first state of the one below")
        return None
    # A tensor's version counts its changes in place; its address changes when it is replaced. Without modules and
    # buffers inside (of a parametrization, or of pruning), the network's own dictionary holds all that a weight is made
    # of, and reading it costs a fraction of what net.parameters() does.
    inside = net._modules or net._buffers
    weights = itertools.chain(net.parameters(), net.buffers()) if inside else net._parameters.values()
    stamps = [(weight._version, weight.data_ptr()) for weight in weights if weight is not None]
    programs, isa = compiled.assembled(net.cell, net.bias), compiled.instruction_set()
    stamp = [_OPTIMIZER_STEPS.count, x.dtype, isa, programs, net.backend, stamps]
    packed = _PACKED.get(net, {}).get(products)
    if packed is None or packed.stamp != stamp:
        _check(net, x, None)
        _OPTIMIZER_STEPS.watch()
        reason = compiled.unsupported_reason(net.cell, x, x.dtype, net.bias)
        if reason is None and products and x.dtype != torch.float32:
            reason = f"it converts weights of float32, and these are {str(x.dtype).removeprefix('torch.')}"
        if reason is not None and products:
            raise _refusal(products, reason)
        if reason is not None and net.backend == "native":
            raise BackendError(f"backend 'native' cannot run this: {reason}; take backend='auto' or 'loop'")
        layers = [net.weights(f"_l{layer}") for layer in range(net.layers)]
        held = [weight.detach() for weight in net.parameters()]
        stack = NativeStack(net.cell, layers, products) if reason is None else None
        packed = _PACKED.setdefault(net, {})[products] = _Packed(stamp, stack, held)
    return packed.stack


def _refusal(products: str, reason: str) -> BackendError:
    return BackendError(f"steps with {products} products are the native backend's, which cannot run this: {reason}")


def _native_step(
    net: Recurrent, stack: NativeStack, x: Tensor, state: States | None
) -> tuple[Tensor, tuple[Tensors, ...]]:
    after = [[x.new_empty(len(x), net.hidden_size) for _ in net.cell.states] for _ in range(net.layers)]
    if state is None:
        state = [_start(net, f"_l{layer}", x) for layer in range(net.layers)]
    before = [[part.contiguous() for part in layer] for layer in state]
    stack.step(x.contiguous(), addresses(before, after))
    return after[-1][0], tuple(map(net.cell.state, after))


def _start(net: Recurrent, suffix: str, x: Tensor) -> Tensors:
    start = net.cell.start(x, len(x), net.state_widths)
    return net.cell.state(net.with_learned(start, suffix) if net.init.learned else start)
