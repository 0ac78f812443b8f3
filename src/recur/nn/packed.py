"""A network's weights as the C++ core, or a GPU's kernels, read them: packed once, and again when they change.

In place, by an optimizer, or by being replaced. Only a write that autograd does not see either, through `weight.data`
or NumPy, goes unnoticed.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from recur.cells._cache import cache_of
from recur.compat import in_transform
from recur.errors import BackendError, DeviceError, DtypeError, ShapeError
from recur.ops.cpu import programs
from recur.ops.cpu.streaming import NativeStack

if TYPE_CHECKING:
    from recur.nn.recurrent import Recurrent
    from recur.ops.cuda.streaming import LayerStack


def check_input(net: Recurrent, x: Tensor) -> None:
    """Of one step."""
    who, weight = type(net.cell).__name__, next(net.parameters())
    if x.dim() != 2 or x.shape[1] != net.input_size:
        raise ShapeError(f"{who}: one step takes x of (B, D={net.input_size}), got {tuple(x.shape)}")
    if x.dtype != weight.dtype:
        raise DtypeError(f"{who}: x is {x.dtype} and the network {weight.dtype}; convert x with x.to({weight.dtype})")
    if x.device != weight.device:
        raise DeviceError(f"{who}: x is on {x.device} and the network on {weight.device}")


class Packed(NamedTuple):
    """A network's weights as they are read, and how it was when they were packed."""

    stamp: list[object] | None
    stack: NativeStack | None
    """None where the core cannot run the network."""
    weights: list[Tensor]
    """Held, so that no other tensor can come to lie at the address of one that was replaced."""
    on_gpu: LayerStack | None = None
    """None where kernels of a GPU cannot run it."""


_PACKED: WeakKeyDictionary[Recurrent, dict[str, Packed]] = WeakKeyDictionary()
"""Of each network, by what products read."""


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


def stack_of(net: Recurrent, x: Tensor, matmul_dtype: str = "") -> NativeStack | None:
    """The network as the core runs it, if it can."""
    return packed_for(net, x, matmul_dtype).stack


def packed_for(net: Recurrent, x: Tensor, matmul_dtype: str, latest: Packed | None = None) -> Packed:
    """Packed again when a weight or an option has changed; `latest` is what was returned before and may still do."""
    stamp = None if in_transform() else _stamp(net, x)
    if stamp is None:
        return _pack(net, x, matmul_dtype, stamp)
    if latest is None or latest.stamp != stamp:
        latest = _PACKED.get(net, {}).get(matmul_dtype)
    if latest is None or latest.stamp != stamp:
        latest = _PACKED.setdefault(net, {})[matmul_dtype] = _pack(net, x, matmul_dtype, stamp)
    return latest


def _stamp(net: Recurrent, x: Tensor) -> list[object] | None:
    """Equal for as long as packed weights are the network's; None where nothing would tell that they have changed."""
    # A tensor's version counts its changes in place; its address changes when it is replaced. Without modules and
    # buffers inside (of a parametrization, or of pruning), the network's own dictionary holds all that a weight is made
    # of, and reading it costs a fraction of what net.parameters() does.
    inside = net._modules or net._buffers
    weights = itertools.chain(net.parameters(), net.buffers()) if inside else net._parameters.values()
    stamp = [
        _OPTIMIZER_STEPS.count, x.dtype, programs.instruction_set(), cache_of(net.cell), net.backend, net.bias,
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


def _pack(net: Recurrent, x: Tensor, matmul_dtype: str, stamp: list[object] | None) -> Packed:
    """The stack that a stamp is for; none without one, or where the core cannot run the network."""
    deepened = net.input_mlp or net.output_mlp or net.between_mlps
    connected = net.connections.skip or net.connections.residual or deepened
    joined = connected or net.projection or net.cell.outputs
    if is_on_gpu(x) and net.backend in ("auto", "cuda") and not matmul_dtype:
        alike = not joined and not net.top  # its kernels take layers of one width
        return _pack_on_gpu(net, x, stamp) if alike and stamp is not None else Packed(stamp, None, [])
    if joined or net.backend not in ("auto", "native") or stamp is None:
        if matmul_dtype:
            plain = "it takes plain layers, one reading the first state of the one below"
            raise _refusal(
                matmul_dtype, plain if stamp is not None else "nothing would tell that its weights have changed"
            )
        return Packed(stamp, None, [])
    check_input(net, x)
    _OPTIMIZER_STEPS.watch()
    reason = programs.unsupported_reason(net.cell, x, x.dtype, net.bias)
    if reason is None and matmul_dtype and x.dtype != torch.float32:
        reason = f"it converts weights of float32, and these are {str(x.dtype).removeprefix('torch.')}"
    if reason is not None and matmul_dtype:
        raise _refusal(matmul_dtype, reason)
    if reason is not None and net.backend == "native":
        raise BackendError(f"backend 'native' cannot run this: {reason}; take backend='auto' or 'loop'")
    layers = [net.weights(f"_l{layer}") for layer in range(net.layers)]
    held = [weight.detach() for weight in net.parameters()]
    return Packed(stamp, NativeStack(net.cell, layers, matmul_dtype) if reason is None else None, held)


def _pack_on_gpu(net: Recurrent, x: Tensor, stamp: list[object]) -> Packed:
    """Nothing is packed while torch.compile looks on: it follows operations of PyTorch, and launches are none."""
    from recur.ops.cuda import streaming
    from recur.ops.cuda.streaming import LayerStack

    check_input(net, x)
    if torch.compiler.is_compiling() or streaming.unsupported_reason(net.cell, x, net.bias) is not None:
        return Packed(stamp, None, [])
    _OPTIMIZER_STEPS.watch()
    layers = [net.weights(f"_l{layer}") for layer in range(net.layers)]
    held = [weight.detach() for weight in net.parameters()]
    return Packed(stamp, None, held, LayerStack(net.cell, layers))


def _refusal(matmul_dtype: str, reason: str) -> BackendError:
    return BackendError(f"steps with {matmul_dtype} products are the native backend's, which cannot run this: {reason}")
