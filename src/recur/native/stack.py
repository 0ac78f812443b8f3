"""A stack of layers whose weights are packed once, for one step at a time: what sampling and serving call per token."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from recur.cells.cell import Cell
from recur.native.call import Form, NativeCall
from recur.native.compiled import operands


class NativeStack:
    """Layers of one cell, each reading the first state of the one below. Nothing is allocated in a step."""

    def __init__(self, cell: Cell, layers: Sequence[Mapping[str, Tensor]], rows: int) -> None:
        self.cell, self.rows = cell, rows
        self._one_at_a_time = threading.Lock()  # the memory is the stack's own, and the core runs without the GIL
        self._layers: list[tuple[NativeCall, Any, Any]] = []
        self._alive: list[object] = []
        with torch.no_grad():
            for weights in layers:
                self._add(weights)
        scans = (ctypes.c_void_p * len(layers))(*(ctypes.addressof(call.scan) for call, _, _ in self._layers))
        self._alive.append(scans)
        self._scans = ctypes.addressof(scans)
        self._isa = self._layers[0][0].isa  # the one that the weights were packed for

    def _add(self, weights: Mapping[str, Tensor]) -> None:
        text, given, extras = operands(self.cell, weights)
        given, extras = [w.contiguous() for w in given], [e.contiguous() for e in extras]
        U = given[0]
        D, H = U.shape[1], U.shape[0] // len(self.cell.gates)
        x, share = U.new_zeros(self.rows, U.shape[1]), U.new_zeros(self.rows, U.shape[0])
        states = [U.new_zeros(self.rows, H) for _ in self.cell.states]
        double, biased = U.dtype == torch.float64, "bias_ih" in weights
        form = Form(text, "use", double, self.rows, D, H, (self.rows,), batch_major=False, biased=biased)
        call = NativeCall(form, x, given, None)
        spare = [torch.empty_like(state) for state in states]
        call.point(extra=extras)
        before, after = call.point(initial=states), call.point(state=spare)
        call.scan.share, call.scan.share_step = share.data_ptr(), share.shape[1]
        workspace = call.run(backward=False)  # packs the weights on its way
        call.scan.packed = 1
        self._layers.append((call, before, after))
        self._alive += [workspace, share, given, extras]

    def step(self, x: Tensor, before: Sequence[Sequence[Tensor]], after: Sequence[Sequence[Tensor]]) -> None:
        """Read x (rows, D) and the states before, layer by layer; write the states after. All contiguous."""
        pointer = x.data_ptr()
        with self._one_at_a_time:
            for (call, was, will), old, new in zip(self._layers, before, after, strict=True):
                call.scan.data = pointer
                for k, (part, into) in enumerate(zip(old, new, strict=True)):
                    was[k], will[k] = part.data_ptr(), into.data_ptr()
                pointer = will[0]
            call.core.stack(self._scans, len(self._layers), self._isa, call.double)
