"""Inference one step at a time, with weights packed once for the C++ core or the GPU kernels.

Packed weights are renewed when a weight is changed in place, changed by an optimizer, or replaced. Only a write that
autograd does not see (through `weight.data` or NumPy) is not noticed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from recur.cells._cache import cache_of
from recur.cells.cell import Tensors
from recur.compat import in_transform
from recur.errors import BackendError, DeviceError, DtypeError, ShapeError
from recur.ops.call import check_matmul_dtype
from recur.ops.cpu import library
from recur.ops.cpu.streaming import NativeStack, addresses

if TYPE_CHECKING:
    from recur.nn.recurrent import Recurrent
    from recur.ops.cuda.streaming import LayerStack, SessionSlots


def check_input(net: Recurrent, x: Tensor) -> None:
    """Raise an error if x is not a valid input of one step."""
    who, weight = type(net.cell).__name__, next(net.parameters())
    if x.dim() != 2 or x.shape[1] != net.input_size:
        raise ShapeError(f"{who}: one step takes x of (B, D={net.input_size}), got {tuple(x.shape)}")
    if x.dtype != weight.dtype:
        raise DtypeError(f"{who}: x is {x.dtype} and the network {weight.dtype}; convert x with x.to({weight.dtype})")
    if x.device != weight.device:
        raise DeviceError(f"{who}: x is on {x.device} and the network on {weight.device}")


class PackedWeights(NamedTuple):
    """Packed weights of a network and the stamp of the network when they were packed."""

    stamp: list[object] | None
    stack: NativeStack | None
    """None if the C++ core cannot run the network."""
    weights: list[Tensor]
    """References that keep the addresses of replaced weights from being reused."""
    on_gpu: LayerStack | None = None
    """None if the GPU kernels cannot run the network."""


_PACKED: WeakKeyDictionary[Recurrent, dict[str, PackedWeights]] = WeakKeyDictionary()
"""Packed weights of each network, by matmul dtype."""


class _OptimizerSteps:
    """Counter of the steps of all optimizers, started when weights are first packed.

    A fused optimizer changes weights in place without increasing their version, so versions alone are not enough.
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


def get_native_stack(net: Recurrent, x: Tensor, matmul_dtype: str = "") -> NativeStack | None:
    """Return the network as the C++ core runs it, or None."""
    return get_packed_weights(net, x, matmul_dtype).stack


def get_packed_weights(
    net: Recurrent, x: Tensor, matmul_dtype: str, latest: PackedWeights | None = None
) -> PackedWeights:
    """Return packed weights; pack again if a weight or an option changed. `latest` is an earlier result to check
    first."""
    stamp = None if in_transform() else _stamp(net, x)
    if stamp is None:
        return _pack(net, x, matmul_dtype, stamp)
    if latest is None or latest.stamp != stamp:
        latest = _PACKED.get(net, {}).get(matmul_dtype)
    if latest is None or latest.stamp != stamp:
        latest = _PACKED.setdefault(net, {})[matmul_dtype] = _pack(net, x, matmul_dtype, stamp)
    return latest


def _stamp(net: Recurrent, x: Tensor) -> list[object] | None:
    """Return a value that is equal as long as packed weights are current; None if changes could not be noticed."""
    # A tensor's version counts its changes in place; its address changes when it is replaced. Without modules and
    # buffers inside (of a parametrization, or of pruning), the network's own dictionary holds all that a weight is made
    # of, and reading it costs a fraction of what net.parameters() does.
    inside = net._modules or net._buffers
    weights = itertools.chain(net.parameters(), net.buffers()) if inside else net._parameters.values()
    stamp = [
        _OPTIMIZER_STEPS.count, x.dtype, library.instruction_set(), cache_of(net.cell), net.backend, net.bias,
        net.connections, net.projection, net.input_mlp, net.output_mlp, net.between_mlps, torch.compiler.is_compiling(),
    ]  # fmt: skip
    try:
        for weight in weights:
            if weight is not None:
                stamp += weight._version, weight.data_ptr()
    except RuntimeError:  # a tensor made under torch.inference_mode has no version
        return None
    return stamp


def is_on_gpu(x: Tensor) -> bool:
    """Return True if x is on a GPU; tests replace this to run the kernels of a GPU elsewhere."""
    return x.is_cuda


def _pack(net: Recurrent, x: Tensor, matmul_dtype: str, stamp: list[object] | None) -> PackedWeights:
    """Pack the weights for a stamp; pack nothing without a stamp or if no fast implementation can run the network."""
    deepened = net.input_mlp or net.output_mlp or net.between_mlps
    connected = net.connections.skip or net.connections.residual or deepened
    joined = connected or net.projection or net.cell.outputs
    nothing = PackedWeights(stamp, None, [])
    layers = [net.weights(f"_l{layer}") for layer in range(net.num_layers)]
    held = [weight.detach() for weight in net.parameters()]
    if is_on_gpu(x) and net.backend in ("auto", "cuda") and not matmul_dtype:
        if joined or net.top or stamp is None:  # its kernels take layers of one width
            return nothing
        from recur.ops.cuda import streaming

        check_input(net, x)
        # torch.compile cannot trace kernel launches.
        if torch.compiler.is_compiling() or streaming.unsupported_reason(net.cell, x, net.bias) is not None:
            return nothing
        _OPTIMIZER_STEPS.watch()
        return PackedWeights(stamp, None, held, streaming.LayerStack(net.cell, layers))
    if joined or net.backend not in ("auto", "native") or stamp is None:
        if matmul_dtype:
            plain = "it takes plain layers, one reading the first state of the one below"
            raise _refusal(
                matmul_dtype, plain if stamp is not None else "nothing would tell that its weights have changed"
            )
        return nothing
    check_input(net, x)
    _OPTIMIZER_STEPS.watch()
    reason = library.unsupported_reason(net.cell, x, x.dtype, net.bias)
    if reason is None and matmul_dtype and x.dtype != torch.float32:
        reason = f"it converts weights of float32, and these are {str(x.dtype).removeprefix('torch.')}"
    if reason is not None and matmul_dtype:
        raise _refusal(matmul_dtype, reason)
    if reason is not None and net.backend == "native":
        raise BackendError(f"backend 'native' cannot run this: {reason}; take backend='auto' or 'loop'")
    return PackedWeights(stamp, NativeStack(net.cell, layers, matmul_dtype) if reason is None else None, held)


def _refusal(matmul_dtype: str, reason: str) -> BackendError:
    return BackendError(f"steps with {matmul_dtype} products are the native backend's, which cannot run this: {reason}")


LayerStates = Sequence[Sequence[Tensor]]
"""States of every layer, (B, H) each."""


@torch.no_grad()
def one_step(net: Recurrent, x: Tensor, state: LayerStates | None) -> tuple[Tensor, tuple[Tensors, ...]]:
    check_input(net, x)
    if state is not None and torch.is_autocast_enabled(x.device.type):  # what a pass under it left is of its dtype
        state = [[part.to(x.dtype) for part in layer] for layer in state]
    if state is not None:
        _check_state(net, x, state)
    packed = get_packed_weights(net, x, check_matmul_dtype(net.matmul_dtype))
    if packed.stack is not None and len(x):
        return _native_step(net, packed.stack, x, state)
    if packed.on_gpu is not None and len(x):
        return _gpu_step(net, packed.on_gpu, x, state)
    with torch.autocast(x.device.type, enabled=False):  # a stream's states keep their dtype
        return _plain_step(net, x, state)


def _plain_step(net: Recurrent, x: Tensor, state: LayerStates | None) -> tuple[Tensor, tuple[Tensors, ...]]:
    """Compute one step with PyTorch operations."""
    cell = net.cell
    bottom = x if net.input_mlp is None else net.input_mlp(x)
    below, every, finals = bottom, [], []
    for layer in range(net.num_layers):
        weights = net.weights(f"_l{layer}")
        before = cell.state(state[layer] if state is not None else initial_state(net, layer, x))
        inputs = torch.cat([below, bottom], dim=-1) if net.connections.skip and layer else below
        arguments = cell.step_arguments(inputs, before, weights)
        after = cell.state(cell.projected(cell.advance(*arguments), weights))
        mlp, here = net.between(layer), cell.output(after)
        here = here if mlp is None else mlp(here)
        below = here + below if net.connections.residual and layer else here
        every.append(below)
        finals.append(after)
    outputs = torch.cat(every, dim=-1) if net.connections.skip else below
    return outputs if net.output_mlp is None else net.output_mlp(outputs), tuple(finals)


class Stream:
    """Network that reads one step after another and keeps its state in its own memory."""

    def __init__(
        self, net: Recurrent, rows: int = 1, state: LayerStates | None = None, matmul_dtype: str | None = None
    ) -> None:
        self.net, self.rows = net, rows
        self._matmul_dtype = net.matmul_dtype if matmul_dtype is None else check_matmul_dtype(matmul_dtype)
        self._packed: PackedWeights | None = None
        # Two buffers: a step reads the first, writes the second, and swaps them. A tensor of torch.inference_mode
        # could not be written outside of it.
        self._buffers: list[list[list[Tensor]]] = [[], []]
        with torch.inference_mode(False), torch.no_grad():
            self._like = next(net.parameters()).new_zeros(rows, net.input_size)
            for buffer in self._buffers:
                for layer in range(net.num_layers):
                    buffer.append([part.clone() for part in initial_state(net, layer, self._like)])
        self._expected = self._like.shape, self._like.dtype, self._like.device
        self._addresses = [addresses(*self._buffers), addresses(*reversed(self._buffers))]
        self._slots: SessionSlots | None = None
        """State slots on a GPU; None on the CPU."""
        self._every = torch.arange(rows, device=self._like.device)
        if state is not None:
            self.state = state

    @property
    def state(self) -> tuple[Tensors, ...]:
        """Copy of the state, one entry per layer. Assign a state to continue from it."""
        layers = self._buffers[0] if self._slots is None else self._slots.state(self._every)
        return tuple(self.net.cell.state([part.to(self._like.dtype, copy=True) for part in layer]) for layer in layers)

    @state.setter
    @torch.no_grad()
    def state(self, given: LayerStates) -> None:
        _check_state(self.net, self._like, given)
        if self._slots is not None:
            self._slots.set_state(self._every, given)
            return
        for layer, new in zip(self._buffers[0], given, strict=True):
            for part, value in zip(layer, new, strict=True):
                part.copy_(value)

    def step(self, x: Tensor) -> Tensor:
        """Read x (rows, D); return new outputs (rows, output_size), which later steps do not change."""
        shape, dtype, device = self._expected
        if x.shape != shape:
            raise ShapeError(f"this stream reads {tuple(shape)}, got {tuple(x.shape)}")
        if x.dtype != dtype:
            raise DtypeError(f"this stream has dtype {dtype}, got x of {x.dtype}; start a new stream")
        if x.device != device:
            raise DeviceError(f"this stream is on {device}, got x on {x.device}; start a new stream")
        self._packed = get_packed_weights(self.net, x, self._matmul_dtype, self._packed)
        stack = self._packed.stack
        if self._packed.on_gpu is not None and self.rows:
            return self._step_on_gpu(x, self._packed.on_gpu)
        if self._slots is not None:  # until now: an option of the network has changed
            kept, self._slots = self.state, None
            self.state = kept
        if stack is None or not self.rows:
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


def _check_state(net: Recurrent, x: Tensor, state: LayerStates) -> None:
    layers = [net.widths_of(layer) for layer in range(net.num_layers)]
    expected = [[((len(x), width), x.dtype) for width in widths] for widths in layers]
    found = [[(tuple(part.shape), part.dtype) for part in parts] for parts in state]
    if found != expected:
        raise ShapeError(
            f"{type(net.cell).__name__}: state must be ({', '.join(net.cell.states)}) for each of {net.num_layers} "
            f"layers, {' and '.join(f'(B={len(x)}, H={width})' for width in layers[-1])} of {x.dtype}; got {found}"
        )


def _native_step(
    net: Recurrent, stack: NativeStack, x: Tensor, state: LayerStates | None
) -> tuple[Tensor, tuple[Tensors, ...]]:
    after = [[x.new_empty(len(x), net.units(layer)) for _ in net.cell.states] for layer in range(net.num_layers)]
    if state is None:
        state = [initial_state(net, layer, x) for layer in range(net.num_layers)]
    before = [[part.contiguous() for part in layer] for layer in state]
    stack.step(x.contiguous(), addresses(before, after))
    return after[-1][0], tuple(map(net.cell.state, after))


def _gpu_step(
    net: Recurrent, layers: LayerStack, x: Tensor, state: LayerStates | None
) -> tuple[Tensor, tuple[Tensors, ...]]:
    from recur.ops.cuda.streaming import SessionSlots

    slots, every = SessionSlots(net.cell, layers, len(x)), torch.arange(len(x), device=x.device)
    if state is None and net.init.learned:
        state = [initial_state(net, layer, x) for layer in range(net.num_layers)]
    if state is not None:
        slots.set_state(every, state)
    outputs = slots.launch(x.detach(), every)
    return outputs, tuple(net.cell.state([part.to(x.dtype) for part in layer]) for layer in slots.state(every))


def initial_state(net: Recurrent, layer: int, x: Tensor) -> Tensors:
    start = net.cell.start(x, len(x), net.widths_of(layer))
    return net.cell.state(net.with_learned(start, f"_l{layer}") if net.init.learned else start)


def restart(net: Recurrent, x: Tensor, state: LayerStates, reset: Tensor) -> tuple[Tensors, ...]:
    """Return a state with the initial state in the rows that `reset` (B,) selects."""
    if not isinstance(reset, Tensor) or reset.dtype != torch.bool or reset.shape != x.shape[:1]:
        got = f"{reset.dtype} {tuple(reset.shape)}" if isinstance(reset, Tensor) else type(reset).__name__
        raise ShapeError(f"{type(net.cell).__name__}: reset must be a bool tensor (B={len(x)},), got {got}")
    _check_state(net, x, state)
    return tuple(
        net.cell.state(
            [torch.where(reset[:, None], *parts) for parts in zip(initial_state(net, k, x), layer, strict=True)]
        )
        for k, layer in enumerate(state)
    )
