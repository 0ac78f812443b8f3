"""Stack of layers that runs one step at a time on packed weights: sampling and serving call it once per token."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from recur.cells.cell import GATE_WEIGHTS, Cell
from recur.compiler.programs import operands
from recur.ops.cpu import library
from recur.ops.cpu.plans import ALIGNMENT, SCRATCH, CoreConfig, CorePlan, ScanParameters, TensorOffset

Addresses: TypeAlias = "array[int]"
"""Addresses of x and, layer by layer, of the states before and after a step."""


def addresses(before: Sequence[Sequence[Tensor]], after: Sequence[Sequence[Tensor]]) -> Addresses:
    """Return the addresses of contiguous states, valid while the tensors live; a step writes that of x to index 0."""
    layers = zip(before, after, strict=True)
    return array("Q", [0, *(part.data_ptr() for old, new in layers for part in (*old, *new))])


MAX_PLANS = 8
"""The number of batch sizes for which a stack keeps a plan, the latest ones. Packed weights serve all batch sizes."""


class NativeStack:
    """Layers of one cell; each layer reads the first state of the layer below."""

    def __init__(self, cell: Cell, layers: Sequence[Mapping[str, Tensor]], matmul_dtype: str = "") -> None:
        """Pack the weights. matmul_dtype: bfloat16 or int8, if matrix products are not in the dtype of the weights."""
        core = library.core()
        assert core is not None
        self._core, self._isa = core, core.isa  # the packed layout depends on the instruction set
        self._plans: dict[tuple[int, int], _StackPlan] = {}
        with torch.no_grad():
            self._layers = [
                _PackedLayer(cell, weights, CoreConfig(1, core.isa, None), matmul_dtype) for weights in layers
            ]

    def step(self, x: Tensor, states: Addresses) -> None:
        """Run one step: read x (rows, D), contiguous, and the states before; write the states after."""
        key = x.shape[0], torch.get_num_threads()
        plan = self._plans.get(key) or self._new_plan(key)
        if status := plan.run(x, states):
            self._core.fail(status)

    def call(self, x: Tensor, states: Addresses) -> Callable[[], int]:
        """Return the C++ part of a step as a function, for benchmarks."""
        return self._new_plan((x.shape[0], torch.get_num_threads())).call(x, states)

    def _new_plan(self, key: tuple[int, int]) -> _StackPlan:
        rows, threads = key
        # No lock, because a fork could leave it locked: two threads may make the same plan, and both are valid.
        for oldest in list(self._plans)[: 1 - MAX_PLANS]:
            self._plans.pop(oldest, None)
        plan = self._plans[key] = _StackPlan(self._layers, rows, CoreConfig(threads, self._isa, self._core.parallel))
        return plan


class _PackedLayer:
    """Packed weights of one layer."""

    def __init__(self, cell: Cell, weights: Mapping[str, Tensor], how: CoreConfig, matmul_dtype: str) -> None:
        self.states = len(cell.states)
        text, given, extras = operands(cell, weights)
        self.tensors = [part.contiguous() for part in (*given, *extras)]
        U = self.tensors[0]
        gates, D = U.shape
        self.form = ScanParameters(
            text, "use", U.dtype, D, gates // len(cell.gates), (1,), False, "bias_ih" in weights, 0, matmul_dtype,
            share_stride=gates,
        )  # fmt: skip
        self.fields = {name: k for k, name in enumerate(name for name in GATE_WEIGHTS if name in weights)}
        self.extras = range(len(given), len(self.tensors))
        self.tensors.append(self.plan(1, how, 0).pack(self.tensors))
        self.fields["packed"] = len(self.tensors) - 1

    def plan(self, rows: int, how: CoreConfig, first: int, data: int | None = None, states: int = 0) -> CorePlan:
        """Return the plan of a step of `rows` rows.

        first   the index of this layer's first tensor among the tensors of a call
        data    the index of the input
        states  the index of the first state before the step; the states after it follow
        """
        fields: dict[str, TensorOffset] = {name: (first + k, 0) for name, k in self.fields.items()}
        tables = {"extra": [(first + k, 0) for k in self.extras]}
        if data is not None:
            fields |= {"data": (data, 0), "share": (SCRATCH, 0)}
            both = [(states + k, 0) for k in range(2 * self.states)]
            tables |= {"initial": both[: self.states], "state": both[self.states :]}
        share = -(-rows * self.form.share_stride * self.form.dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return CorePlan(self.form._replace(sizes=(rows,)), how, fields, tables, first + len(self.tensors), share)


class _StackPlan:
    """Plan of one step of all layers for one batch size."""

    def __init__(self, layers: Sequence[_PackedLayer], rows: int, how: CoreConfig) -> None:
        data, at, first = 0, 1, 1 + sum(2 * layer.states for layer in layers)
        self._plans = []
        for layer in layers:
            self._plans.append(layer.plan(rows, how, first, data, at))
            data = at + layer.states  # the next layer reads the first new state of this one
            at, first = at + 2 * layer.states, first + len(layer.tensors)
        prepared = self._prepared = (library.PreparedStruct * len(layers))(*(plan.prepared for plan in self._plans))
        self._weights = array("Q", [tensor.data_ptr() for layer in layers for tensor in layer.tensors])
        self._run, self._address, self._count = self._plans[0].core.run, ctypes.addressof(prepared), len(layers)

    def run(self, x: Tensor, states: Addresses) -> int:
        addresses = states + self._weights
        addresses[0] = x.data_ptr()
        status: int = self._run(self._address, self._count, addresses.buffer_info()[0])
        return status

    def call(self, x: Tensor, states: Addresses) -> Callable[[], int]:
        addresses = states + self._weights
        addresses[0] = x.data_ptr()
        return functools.partial(self._run, self._address, self._count, addresses.tobytes())
