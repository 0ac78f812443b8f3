"""One step for many sessions at once, their states on the GPU by slot: what serving calls for every token.

A step is one launch a layer: U x, W h, biases and the cell's program together. All layers in one would need a barrier
of the whole grid between them, which costs what a launch in a CUDA graph does, and would not run beside other kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from recur.cells.cell import Cell, Tensors
from recur.compiler import program_text
from recur.errors import DeviceError, DtypeError, OptionError, ShapeError
from recur.ops.cuda.arguments import STREAM, Arguments
from recur.ops.cuda.cache import loaded
from recur.ops.cuda.device import device
from recur.ops.cuda.driver import Launch, Prepared, current_stream
from recur.ops.cuda.missing import missing
from recur.ops.cuda.operands import uses_tf32
from recur.ops.cuda.run import on_device
from recur.ops.cuda.source import NUMBERS, source
from recur.ops.cuda.stack import Layers
from recur.ops.cuda.tiles import THREADS, Few, Step, Tile, tile_of

Index: TypeAlias = "Tensor | Sequence[int]"
MAX_CALLS = 64
"""For how many numbers of rows a stack keeps its launches ready: the latest so many."""


def is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def unsupported_reason(cell: Cell, x: Tensor, biased: bool) -> str | None:
    """Why there is no such step for a cell on inputs such as x, or None if there is."""
    if not is_on_gpu(x):
        return f"it runs on a GPU, and x is on {x.device}"
    if x.dtype not in NUMBERS:
        return f"it knows float32, float64, bfloat16 and float16, and x is {str(x.dtype).removeprefix('torch.')}"
    return missing(x.device.index) or program_text.not_compiled(cell, x, biased)


def text(cell: str, dtype: torch.dtype, tile: Tile, p: Step, aligned: bool) -> str:
    """The kernel of a tile. `aligned`: rows of x begin, and end, with 16 bytes."""
    options = tuple((tile.options(p) | {"X_ALIGNED": int(aligned)}).items())
    bodies = ("stream", "stream_few") if isinstance(tile, Few) else ("mma", "fetch", "stream", "stream_many")
    return source(cell, dtype, bodies, options)


@functools.lru_cache(maxsize=1024)
def kernel(cell: str, dtype: torch.dtype, p: Step, aligned: bool, index: int) -> Prepared:
    here = device(index)
    tile = tile_of(p, here)
    made = loaded(text(cell, dtype, tile, p, aligned), here.architecture, index)
    return made.function("stream_step").prepare(Launch(tile.ctas(p), THREADS, tile.shared_bytes(p)))


class Slots:
    """The states of so many sessions on a GPU, each in its slot.

    Indices that are not yet on the GPU are checked; those that are would have to be waited for, and are not. There, no
    slot may stand twice in one call, and of `step` alone, a row whose index is no slot's (−1, say) is idle: its output
    is zero. So a CUDA graph of a fixed number of rows serves fewer. Capture one after a first step of as many rows,
    with indices on the GPU, and change them in place. Steps of the same slots belong on one stream.
    """

    def __init__(
        self,
        cell: Cell,
        layers: Layers | Sequence[Mapping[str, Tensor]],
        slots: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """`layers`: the weights of each as scan takes them; read now, and not again when they change."""
        if slots < 1:
            raise OptionError(f"slots must be a whole number ≥ 1, got {slots}")
        self.slots = slots
        self.stack = layers if isinstance(layers, Layers) else Layers(cell, layers, dtype, device)
        self._calls: dict[tuple[int, int, bool, bool], list[tuple[Prepared, Arguments]]] = {}
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

    def use(self, stack: Layers) -> None:
        """Other weights of the same shapes from now on."""
        if stack is not self.stack:
            self.stack = stack
            self._calls.clear()

    def step(self, x: Tensor, index: Index) -> Tensor:
        """x (n, D) of the sessions in these slots, (n,) → their outputs, (n, H); their states advance."""
        return self.launch(x, self._indices(index))

    def launch(self, x: Tensor, where: Tensor) -> Tensor:
        """The same of indices that lie on the GPU."""
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
            stream = current_stream(x.device.index) if x.is_cuda else 0
            for run, arguments in calls:
                out = below.new_empty(n, stack.width)
                arguments.put(index=where, x=below, out=out)
                run(stream, arguments.struct)
                below = out
        return below

    def _prepare(self, n: int, pitch: int, aligned: bool, exact: bool) -> list[tuple[Prepared, Arguments]]:
        for oldest in list(self._calls)[: 1 - MAX_CALLS]:
            self._calls.pop(oldest, None)
        stack, last, key = self.stack, len(self._pools) - 1, (n, pitch, aligned, exact)
        made: list[tuple[Prepared, Arguments]] = []
        for k, layer in enumerate(stack.layers):
            if k:
                pitch = stack.width
                aligned = pitch * stack.dtype.itemsize % 16 == 0
            p = Step.of(layer.assembly, n, layer.D, layer.H, stack.dtype, exact)
            run = kernel(layer.text, stack.dtype, p, aligned, stack.device.index or 0)
            numbers = {"n": n, "slots": self.slots, "D": layer.D, "H": layer.H}
            arguments = Arguments(layer.assembly, STREAM, **numbers, x_pitch=pitch, out_pitch=stack.width)
            arguments.put(**layer.tensors, v=self._v[k], state=self._pools[k], parity=self._parity)
            arguments.put(tickets=self._tickets if k == last else None)
            made.append((run, arguments))
        self._calls[key] = made
        return made

    @torch.no_grad()
    def state(self, index: Index) -> tuple[Tensors, ...]:
        """A copy of the states of these slots, layer by layer, (n, H) each; of 16-bit networks in float32."""
        where = self._indices(index)
        return tuple(self.stack.cell.state([pool[where] for pool in layer]) for layer in self._pools)

    @torch.no_grad()
    def set_state(self, index: Index, states: Sequence[Sequence[Tensor]]) -> None:
        """States as `state` returns them, of any dtype; (H,) for all slots alike."""
        where = self._indices(index)
        current = self._parity[where].long() * self.slots + where
        for pools, v, parts in zip(self._pools, self._v, states, strict=True):
            for pool, part in zip(pools, parts, strict=True):
                pool.index_copy_(0, where, part.to(pool).expand(len(where), -1))
            if v is not None:
                v[:, : self.stack.H].index_copy_(0, current, parts[0].to(v).expand(len(where), -1))

    def reset(self, index: Index) -> None:
        """New sessions in these slots: they start where the cell starts."""
        cell, like = self.stack.cell, self._pools[0][0]
        start = cell.start(like, 1, [self.stack.H] * len(cell.states))
        self.set_state(index, [start] * len(self._pools))

    def _indices(self, index: Index) -> Tensor:
        """On the GPU."""
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
