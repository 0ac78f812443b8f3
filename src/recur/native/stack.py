"""A stack of layers whose weights are packed once, for one step at a time: what sampling and serving call per token."""

from __future__ import annotations

import functools
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from recur.cells.cell import Cell
from recur.native import library
from recur.native.call import WORDS, Form, NativeCall
from recur.native.compiled import operands

Pointers = list["array[int]"]
"""Layer by layer, where the states before a step lie and where those after it go."""


def pointers(before: Sequence[Sequence[Tensor]], after: Sequence[Sequence[Tensor]]) -> Pointers:
    """Of states that are all contiguous. The same for as long as the tensors live."""
    layers = zip(before, after, strict=True)
    return [array("Q", [part.data_ptr() for part in (*old, *new)]) for old, new in layers]


_DATA = WORDS["data"]

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

    def step(self, x: Tensor, states: Pointers) -> None:
        """Read x (rows, D), which is contiguous, and the states before, layer by layer; write the states after."""
        key = x.shape[0], torch.get_num_threads()
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                if len(self._plans) == MAX_PLANS:
                    del self._plans[next(iter(self._plans))]
                plan = self._plans[key] = _Plan(self._layers, key[0], self._isa)
            plan.step(x, states)

    def last_call(self) -> Callable[[], int]:
        """The core's part of the step before, to be measured."""
        return next(reversed(self._plans.values())).run


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
        self._calls: list[tuple[NativeCall, memoryview[int]]] = []
        self._alive: list[Tensor] = []
        for layer in layers:
            x, share = layer.packed.new_empty(rows, layer.D), layer.packed.new_empty(rows, layer.gates)
            call = layer.call(x, isa)
            workspace = call.new_memory(call.size)
            call.put(workspace=workspace, packed=layer.packed, share=share, share_stride=layer.gates)
            unknown = [None] * layer.states  # until a step gives its states
            self._calls.append((call, call.point(initial=unknown, state=unknown)))
            self._alive += [workspace, share]
        self._scans = array("Q", [call.address for call, _ in self._calls])
        self._core = call.core
        self.run = functools.partial(call.core.stack, self._scans.buffer_info()[0], len(layers), call.isa, call.numbers)

    def step(self, x: Tensor, states: Pointers) -> None:
        pointer = x.data_ptr()
        for (call, table), mine in zip(self._calls, states, strict=True):
            call.words[_DATA] = pointer
            table[:] = memoryview(mine)
            pointer = mine[len(mine) // 2]  # the first state after the step is what the next layer reads
        if status := self.run():
            self._core.fail(status)
