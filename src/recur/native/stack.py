"""A stack of layers whose weights are packed once, for one step at a time: what sampling and serving call per token."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from recur.cells.cell import Cell
from recur.native import library
from recur.native.call import Form, NativeCall
from recur.native.compiled import operands

Pointers = ctypes.Array[ctypes.c_void_p]

MAX_PLANS = 8
"""For how many batch sizes a stack holds scratch memory: the latest so many. Packed weights serve all of them."""


class NativeStack:
    """Layers of one cell, each reading the first state of the one below. Only a new batch size allocates memory."""

    def __init__(self, cell: Cell, layers: Sequence[Mapping[str, Tensor]], products: str = "") -> None:
        """`products`: what they read, if not the weights as they are; bfloat16 or int8."""
        core = library.core()
        assert core is not None
        self._isa = core.isa  # the one that the weights are packed for
        self._lock = threading.Lock()  # the scratch memory is the stack's own, and the core runs without the GIL
        self._plans: dict[tuple[int, int], _Plan] = {}
        with torch.no_grad():
            self._layers = [_Layer(cell, weights, self._isa, products) for weights in layers]

    def step(self, x: Tensor, before: Sequence[Sequence[Tensor]], after: Sequence[Sequence[Tensor]]) -> None:
        """Read x (rows, D) and the states before, layer by layer; write the states after. All contiguous."""
        key = x.size(0), torch.get_num_threads()
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                if len(self._plans) == MAX_PLANS:
                    del self._plans[next(iter(self._plans))]
                plan = self._plans[key] = _Plan(self._layers, key[0], self._isa)
            plan.step(x, before, after)


class _Layer:
    """The weights of one layer, packed."""

    def __init__(self, cell: Cell, weights: Mapping[str, Tensor], isa: int, products: str) -> None:
        self.states, self.products = len(cell.states), products
        self.text, given, extras = operands(cell, weights)
        self.weights, self.extras = [w.contiguous() for w in given], [e.contiguous() for e in extras]
        self.biased = "bias_ih" in weights
        U = self.weights[0]
        self.gates, self.D = U.shape
        self.H = self.gates // len(cell.gates)
        self.packed = self.call(U.new_empty(1, self.D), isa, packed=False).pack()

    def call(self, x: Tensor, isa: int, packed: bool = True) -> NativeCall:
        rows, double = len(x), x.dtype == torch.float64
        form = Form(
            self.text, "use", double, rows, self.D, self.H, (rows,), False, self.biased,
            packed=packed, products=self.products,
        )  # fmt: skip
        call = NativeCall(form, x, self.weights, None, isa)
        call.point(extra=self.extras)
        return call


class _Plan:
    """The calls of one step for one batch size, one for each layer, and their scratch memory."""

    def __init__(self, layers: Sequence[_Layer], rows: int, isa: int) -> None:
        self._calls: list[tuple[NativeCall, Pointers, Pointers]] = []
        self._alive: list[Tensor] = []
        for layer in layers:
            x, share = layer.packed.new_empty(rows, layer.D), layer.packed.new_empty(rows, layer.gates)
            call = layer.call(x, isa)
            workspace = call.new_memory(call.size)
            call.scan.workspace, call.scan.packed = workspace.data_ptr(), layer.packed.data_ptr()
            call.scan.share, call.scan.share_stride = share.data_ptr(), layer.gates
            unknown = [None] * layer.states  # until a step gives its states
            self._calls.append((call, call.point(initial=unknown), call.point(state=unknown)))
            self._alive += [workspace, share]
        scans = (ctypes.c_void_p * len(layers))(*(ctypes.addressof(call.scan) for call, _, _ in self._calls))
        self._scans, self._address, self._count = scans, ctypes.addressof(scans), len(layers)

    def step(self, x: Tensor, before: Sequence[Sequence[Tensor]], after: Sequence[Sequence[Tensor]]) -> None:
        pointer: int | None = x.data_ptr()
        for (call, initial, state), old, new in zip(self._calls, before, after, strict=True):
            call.scan.data = pointer
            for k, (part, into) in enumerate(zip(old, new, strict=True)):
                initial[k], state[k] = part.data_ptr(), into.data_ptr()
            pointer = state[0]
        if status := call.core.stack(self._address, self._count, call.isa, call.numbers):
            call.core.fail(status)
