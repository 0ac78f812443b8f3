"""One step for many sessions at once, with their states in slots on the GPU: serving calls it for every token.

A step is one launch per layer: U x, W h, biases and the program of the cell. All layers in one launch would need a
barrier of the whole grid between layers, which costs as much as a launch in a CUDA graph and would not run next to
other kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from recur.cells.cell import Cell, Tensors
from recur.compat import current_raw_stream
from recur.compiler import programs
from recur.compiler.assembly import load_assembly
from recur.errors import BackendError, DeviceError, DtypeError, OptionError, ShapeError
from recur.ops.cuda.codegen import DTYPE_CODES, STREAM_FIELDS, KernelArguments, kernel_source
from recur.ops.cuda.config import STREAM_THREADS, SmallBatchTile, StreamStep, StreamTile, choose_tile
from recur.ops.cuda.dispatch import missing_reason, on_device
from recur.ops.cuda.driver import LaunchSpec, PreparedKernel, device_info
from recur.ops.cuda.layout import align_rows, dense_weights, uses_tf32
from recur.ops.cuda.nvrtc import load_module


class StreamLayer:
    """Weights of one layer as kernels read them: rows padded to 16 bytes, and a dense W."""

    def __init__(self, cell: Cell, weights: Mapping[str, Tensor]) -> None:
        made = programs.assembled(cell, "bias_ih" in weights)
        if isinstance(made, str):
            raise BackendError(f"{type(cell).__name__} has no step on the GPU: {made}")
        if "weight_hr" in weights:
            raise BackendError("a projected state takes two products a step; take net.step, which has them")
        self.text, _, extras = programs.operands(cell, weights)
        self.assembly = a = load_assembly(self.text)
        U = weights["weight_ih"]
        self.D, self.H = U.shape[1], U.shape[0] // a.gates
        self.tensors: dict[str, Tensor | Sequence[Tensor] | None] = {
            "U": _pad_rows(U),
            "W": _pad_rows(dense_weights(weights["weight_hh"], a.products, a.heads)) if a.products else None,
            "extra": [part.contiguous() for part in extras],
        }
        for name in ("bias_ih", "bias_hh"):
            self.tensors[name] = weights[name].contiguous() if name in weights else None


def _pad_rows(matrix: Tensor) -> Tensor:
    rest = -matrix.shape[1] % (16 // matrix.dtype.itemsize)
    return align_rows(pad(matrix, (0, rest)) if rest else matrix)


class LayerStack:
    """Stack of layers of one cell, each reading the outputs of the layer below."""

    def __init__(
        self,
        cell: Cell,
        weights: Sequence[Mapping[str, Tensor]],
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        with torch.inference_mode(False), torch.no_grad():
            moved = [{k: w.detach().to(device, dtype) for k, w in layer.items()} for layer in weights]
            self.cell, self.layers = cell, [StreamLayer(cell, layer) for layer in moved]
        first = moved[0]["weight_ih"]
        self.dtype, self.device = first.dtype, first.device
        if self.dtype not in DTYPE_CODES:
            raise DtypeError(f"a step on the GPU knows float32, float64, bfloat16 and float16, got {self.dtype}")
        self.real = torch.float64 if self.dtype == torch.float64 else torch.float32
        a = self.layers[0].assembly
        self.D, self.H, self.width = self.layers[0].D, self.layers[0].H, self.layers[0].H * len(a.outputs)
        for layer in self.layers[1:]:
            if (self.width, self.H) != (layer.D, layer.H):
                raise ShapeError(f"a layer reads {self.width} numbers and has H={self.H}, got {layer.D} and {layer.H}")


Index: TypeAlias = "Tensor | Sequence[int]"
MAX_PREPARED_CALLS = 64
"""Number of batch sizes for which prepared launches are kept, the latest ones."""


def unsupported_reason(cell: Cell, x: Tensor, biased: bool) -> str | None:
    """Return the reason why the kernel cannot step a cell on inputs like x, or None."""
    if not x.is_cuda:
        return f"it runs on a GPU, and x is on {x.device}"
    if x.dtype not in DTYPE_CODES:
        return f"it knows float32, float64, bfloat16 and float16, and x is {str(x.dtype).removeprefix('torch.')}"
    return missing_reason(x.device.index) or programs.not_compiled(cell, x, biased)


def kernel_text(cell: str, dtype: torch.dtype, tile: StreamTile, p: StreamStep, aligned: bool) -> str:
    """Return the source of the kernel. `aligned`: rows of x are aligned to 16 bytes."""
    options = tuple((tile.options(p) | {"X_ALIGNED": int(aligned)}).items())
    bodies = ("stream", "stream_few") if isinstance(tile, SmallBatchTile) else ("mma", "fetch", "stream", "stream_many")
    return kernel_source(cell, dtype, bodies, options)


@functools.lru_cache(maxsize=1024)
def prepare_kernel(cell: str, dtype: torch.dtype, p: StreamStep, aligned: bool, index: int) -> PreparedKernel:
    here = device_info(index)
    tile = choose_tile(p, here)
    made = load_module(kernel_text(cell, dtype, tile, p, aligned), here.architecture, index)
    return made.function("stream_step").prepare(LaunchSpec(tile.ctas(p), STREAM_THREADS, tile.shared_bytes(p)))


class SessionSlots:
    """States of sessions on a GPU, one slot per session.

    Indices on the CPU are checked. Indices on the GPU are not, because that would wait for the device: a slot must
    not occur twice in a call, and `step` ignores rows whose index is not a slot, such as −1 (their output is zero).
    So a CUDA graph with a fixed number of rows serves fewer sessions too: capture it after a first step with as
    many rows, with indices on the GPU, and change the indices in place. Run all steps of a slot on one stream.
    """

    def __init__(
        self, cell: Cell, layers: LayerStack | Sequence[Mapping[str, Tensor]], slots: int,
        dtype: torch.dtype | None = None, device: torch.device | str | None = None,
    ) -> None:  # fmt: skip
        """Create the slots. `layers`: weights of each layer as `scan` takes them; later changes are not seen."""
        if slots < 1:
            raise OptionError(f"slots must be a whole number ≥ 1, got {slots}")
        self.slots = slots
        self.stack = layers if isinstance(layers, LayerStack) else LayerStack(cell, layers, dtype, device)
        self._calls: dict[tuple[int, int, bool, bool], list[tuple[PreparedKernel, KernelArguments]]] = {}
        a, H = self.stack.layers[0].assembly, self.stack.H
        with torch.inference_mode(False), torch.no_grad():
            start = [cell.initial.get(name, 0.0) for name in cell.states]
            empty = torch.empty(slots, H, dtype=self.stack.real, device=self.stack.device)
            self._pools = [[torch.full_like(empty, number) for number in start] for _ in self.stack.layers]
            self._v: list[Tensor | None] = [None] * len(self._pools)
            if a.products:
                whole = torch.full((2 * slots, H), start[0], dtype=self.stack.dtype, device=self.stack.device)
                rest = -H % (16 // self.stack.dtype.itemsize)
                self._v = [pad(whole, (0, rest)) if rest else whole.clone() for _ in self._pools]
            self._parity, self._tickets = torch.zeros(2, slots, dtype=torch.int32, device=self.stack.device).unbind()

    def use(self, stack: LayerStack) -> None:
        """Use other weights of the same shapes from now on."""
        if stack is not self.stack:
            self.stack = stack
            self._calls.clear()

    def step(self, x: Tensor, index: Index) -> Tensor:
        """Advance the sessions in slots `index`, (n,), by one step with x, (n, D), and return their outputs, (n, H)."""
        return self.launch(x, self._indices(index))

    def launch(self, x: Tensor, where: Tensor) -> Tensor:
        """Run `step` with indices on the GPU."""
        stack, n = self.stack, len(where)
        if x.shape != (n, stack.D):
            raise ShapeError(f"a step of {n} slots takes x of {(n, stack.D)}, got {tuple(x.shape)}")
        if x.dtype != stack.dtype:
            raise DtypeError(f"these slots are for x of {stack.dtype}, got {x.dtype}")
        if x.device != stack.device:
            raise DeviceError(f"these slots are on {stack.device}, got x on {x.device}")
        if n > self.slots:
            raise ShapeError(f"there are {self.slots} slots, got {n} rows")
        below = x if x.stride(1) == 1 else x.contiguous()
        if not n:
            return x.new_empty(0, stack.width)
        with on_device(stack.device):
            pitch = below.stride(0)
            aligned = not (stack.D * x.itemsize % 16 or pitch * x.itemsize % 16 or below.data_ptr() % 16)
            key = n, pitch, aligned, stack.dtype == torch.float32 and not uses_tf32()
            calls = self._calls.get(key) or self._prepare(*key)
            stream = current_raw_stream(x.device.index) if x.is_cuda else 0
            for run, arguments in calls:
                out = below.new_empty(n, stack.width)
                arguments.put(index=where, x=below, out=out)
                run(stream, arguments.struct)
                below = out
        return below

    def _prepare(self, n: int, pitch: int, aligned: bool, exact: bool) -> list[tuple[PreparedKernel, KernelArguments]]:
        for oldest in list(self._calls)[: 1 - MAX_PREPARED_CALLS]:
            self._calls.pop(oldest, None)
        stack, last, key = self.stack, len(self._pools) - 1, (n, pitch, aligned, exact)
        made: list[tuple[PreparedKernel, KernelArguments]] = []
        for k, layer in enumerate(stack.layers):
            if k:
                pitch = stack.width
                aligned = pitch * stack.dtype.itemsize % 16 == 0
            p = StreamStep.of(layer.assembly, n, layer.D, layer.H, stack.dtype, exact)
            run = prepare_kernel(layer.text, stack.dtype, p, aligned, stack.device.index or 0)
            numbers = {"n": n, "slots": self.slots, "D": layer.D, "H": layer.H}
            arguments = KernelArguments(layer.assembly, STREAM_FIELDS, **numbers, x_pitch=pitch, out_pitch=stack.width)
            arguments.put(**layer.tensors, v=self._v[k], state=self._pools[k], parity=self._parity)
            arguments.put(tickets=self._tickets if k == last else None)
            made.append((run, arguments))
        self._calls[key] = made
        return made

    @torch.no_grad()
    def state(self, index: Index) -> tuple[Tensors, ...]:
        """Return a copy of the states of slots, by layer, (n, H) each; float32 for 16-bit networks."""
        where = self._indices(index)
        return tuple(self.stack.cell.state([pool[where] for pool in layer]) for layer in self._pools)

    @torch.no_grad()
    def set_state(self, index: Index, states: Sequence[Sequence[Tensor]]) -> None:
        """Set the states of slots, as `state` returns them, of any dtype; (H,) for all slots alike."""
        where = self._indices(index)
        current = self._parity[where].long() * self.slots + where
        for pools, v, parts in zip(self._pools, self._v, states, strict=True):
            for pool, part in zip(pools, parts, strict=True):
                pool.index_copy_(0, where, part.to(pool).expand(len(where), -1))
            if v is not None:
                v[:, : self.stack.H].index_copy_(0, current, parts[0].to(v).expand(len(where), -1))

    def reset(self, index: Index) -> None:
        """Start new sessions in slots, with the cell's initial state."""
        cell, like = self.stack.cell, self._pools[0][0]
        start = cell.start(like, 1, [self.stack.H] * len(cell.states))
        self.set_state(index, [start] * len(self._pools))

    def _indices(self, index: Index) -> Tensor:
        """Check indices on the CPU and move them to the GPU."""
        if isinstance(index, Tensor) and index.is_cuda:
            if index.device != self.stack.device:
                raise DeviceError(f"the slots are on {self.stack.device}, got indices on {index.device}")
            if index.dtype != torch.int64 or index.dim() != 1:
                raise DtypeError(f"slots on the GPU are (n,) of int64, got {tuple(index.shape)} of {index.dtype}")
            return index.contiguous()
        given = torch.as_tensor(index, dtype=torch.int64)
        if given.dim() != 1:
            raise ShapeError(f"slots are (n,), got {tuple(given.shape)}")
        if len(given) and not 0 <= int(given.min()) <= int(given.max()) < self.slots:
            raise OptionError(f"there are slots 0 to {self.slots - 1}, got {int(given.min())} to {int(given.max())}")
        if len(given.unique()) < len(given):
            raise OptionError("a slot stands twice in one step: a session takes one step after the other")
        return given.to(self.stack.device)
