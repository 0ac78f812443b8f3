"""One step of a network at a time, for use: sampling and serving call this once a token.

The same numbers as `Recurrent.forward` in evaluation mode. Nothing is saved for a backward pass, which is most of what
a single step of a scan costs. Where the C++ core, or on a GPU one kernel a layer, can run a plain stack of layers, it
does, on weights that were packed once and are packed again when they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import linear

from recur.cells.cell import Tensors
from recur.errors import DeviceError, DtypeError, ShapeError
from recur.nn.packed import Packed, check_input, packed_for
from recur.ops.checks import check_matmul_dtype
from recur.ops.cpu.streaming import NativeStack, addresses

if TYPE_CHECKING:
    from recur.nn.recurrent import Recurrent
    from recur.ops.cuda.streaming import LayerStack, SessionSlots


States = Sequence[Sequence[Tensor]]
"""The states of every layer, (B, H) each."""


@torch.no_grad()
def one_step(net: Recurrent, x: Tensor, state: States | None) -> tuple[Tensor, tuple[Tensors, ...]]:
    check_input(net, x)
    if state is not None and torch.is_autocast_enabled(x.device.type):  # what a pass under it left is of its dtype
        state = [[part.to(x.dtype) for part in layer] for layer in state]
    if state is not None:
        _check_state(net, x, state)
    packed = packed_for(net, x, check_matmul_dtype(net.matmul_dtype))
    if packed.stack is not None:
        return _native_step(net, packed.stack, x, state)
    if packed.on_gpu is not None and len(x):
        return _gpu_step(net, packed.on_gpu, x, state)
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
        before = s_of(state[layer]) if state is not None else start_of(net, layer, x)
        inputs = torch.cat([below, bottom], dim=-1) if net.connections.skip and layer else below
        share = x_of(linear(inputs, weights["weight_ih"], weights.get("bias_ih")).chunk(G, dim=-1))
        projections: Sequence[Tensor] = ()
        if R:
            projections = cell.product(cell.multiplied(share, before, own), weights).chunk(R, dim=-1)
        after = s_of(cell.projected(cell.advance(share, h_of(projections), before, own), weights))
        mlp, here = net.between(layer), cell.output(after)
        here = here if mlp is None else mlp(here)
        below = here + below if net.connections.residual and layer else here
        every.append(below)
        finals.append(after)
    outputs = torch.cat(every, dim=-1) if net.connections.skip else below
    return outputs if net.output_mlp is None else net.output_mlp(outputs), tuple(finals)


class Stream:
    """A network that reads one step after another and holds its state in memory of its own."""

    def __init__(
        self, net: Recurrent, rows: int = 1, state: States | None = None, matmul_dtype: str | None = None
    ) -> None:
        self.net, self.rows = net, rows
        self._matmul_dtype = net.matmul_dtype if matmul_dtype is None else check_matmul_dtype(matmul_dtype)
        self._packed: Packed | None = None
        # Two buffers: a step reads the first, writes the second, and swaps them. A tensor of torch.inference_mode
        # could not be written outside of it.
        self._buffers: list[list[list[Tensor]]] = [[], []]
        with torch.inference_mode(False), torch.no_grad():
            self._like = next(net.parameters()).new_zeros(rows, net.input_size)
            for buffer in self._buffers:
                for layer in range(net.layers):
                    buffer.append([part.clone() for part in start_of(net, layer, self._like)])
        self._expected = self._like.shape, self._like.dtype, self._like.device
        self._addresses = [addresses(*self._buffers), addresses(*reversed(self._buffers))]
        self._slots: SessionSlots | None = None
        """On a GPU, where the state is instead: in these slots."""
        self._every = torch.arange(rows, device=self._like.device)
        if state is not None:
            self.state = state

    @property
    def state(self) -> tuple[Tensors, ...]:
        """A copy of the state, layer by layer; assign one to continue from it."""
        layers = self._buffers[0] if self._slots is None else self._slots.state(self._every)
        return tuple(self.net.cell.state([part.to(self._like.dtype, copy=True) for part in layer]) for layer in layers)

    @state.setter
    @torch.no_grad()
    def state(self, given: States) -> None:
        _check_state(self.net, self._like, given)
        if self._slots is not None:
            self._slots.set_state(self._every, given)
            return
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
        self._packed = packed_for(self.net, x, self._matmul_dtype, self._packed)
        stack = self._packed.stack
        if self._packed.on_gpu is not None and self.rows:
            return self._step_on_gpu(x, self._packed.on_gpu)
        if self._slots is not None:  # until now: an option of the network has changed
            kept, self._slots = self.state, None
            self.state = kept
        if stack is None:
            outputs, self.state = one_step(self.net, x, self._buffers[0])
            return outputs
        stack.step(x.contiguous(), self._addresses[0])
        self._buffers.reverse()
        self._addresses.reverse()
        return self._buffers[0][-1][0].clone()

    def _step_on_gpu(self, x: Tensor, layers: LayerStack) -> Tensor:
        if self._slots is None:
            from recur.ops.cuda.streaming import SessionSlots

            slots = SessionSlots(self.net.cell, layers, self.rows)
            slots.set_state(self._every, self._buffers[0])
            self._slots = slots
        self._slots.use(layers)
        return self._slots.launch(x.detach(), self._every)


def _check_state(net: Recurrent, x: Tensor, state: States) -> None:
    layers = [net.widths_of(layer) for layer in range(net.layers)]
    expected = [[((len(x), width), x.dtype) for width in widths] for widths in layers]
    found = [[(tuple(part.shape), part.dtype) for part in parts] for parts in state]
    if found != expected:
        raise ShapeError(
            f"{type(net.cell).__name__}: state must be ({', '.join(net.cell.states)}) for each of {net.layers} layers, "
            f"{' and '.join(f'(B={len(x)}, H={width})' for width in layers[-1])} of {x.dtype}; got {found}"
        )


def _native_step(
    net: Recurrent, stack: NativeStack, x: Tensor, state: States | None
) -> tuple[Tensor, tuple[Tensors, ...]]:
    after = [[x.new_empty(len(x), net.units(layer)) for _ in net.cell.states] for layer in range(net.layers)]
    if state is None:
        state = [start_of(net, layer, x) for layer in range(net.layers)]
    before = [[part.contiguous() for part in layer] for layer in state]
    stack.step(x.contiguous(), addresses(before, after))
    return after[-1][0], tuple(map(net.cell.state, after))


def _gpu_step(
    net: Recurrent, layers: LayerStack, x: Tensor, state: States | None
) -> tuple[Tensor, tuple[Tensors, ...]]:
    from recur.ops.cuda.streaming import SessionSlots

    slots, every = SessionSlots(net.cell, layers, len(x)), torch.arange(len(x), device=x.device)
    if state is None and net.init.learned:
        state = [start_of(net, layer, x) for layer in range(net.layers)]
    if state is not None:
        slots.set_state(every, state)
    outputs = slots.launch(x.detach(), every)
    return outputs, tuple(net.cell.state([part.to(x.dtype) for part in layer]) for layer in slots.state(every))


def start_of(net: Recurrent, layer: int, x: Tensor) -> Tensors:
    start = net.cell.start(x, len(x), net.widths_of(layer))
    return net.cell.state(net.with_learned(start, f"_l{layer}") if net.init.learned else start)
