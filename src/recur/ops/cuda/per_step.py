"""Steps of one launch each, and the product with W before each of them, all in one call of the C++ core:
launches.cpp."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Hashable, Sequence
from ctypes import Structure, byref, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from typing import NamedTuple

import torch
from torch import Tensor

from recur.compat import current_raw_stream
from recur.ops.cuda import blas
from recur.ops.cuda.blas import Matmul, MatmulDescriptor, MatmulOperand
from recur.ops.cuda.codegen import KernelArguments, kernel_source
from recur.ops.cuda.driver import LaunchConfig, LaunchSpec, PreparedKernel, device_info
from recur.ops.cuda.graphs import graph_cache
from recur.ops.cuda.launches import core, launch_functions, max_workspace
from recur.ops.cuda.layout import (
    ScanGradients,
    ScanLayout,
    ScanOperands,
    ScanResults,
    float32_precision,
    multiply,
    uses_tf32,
)
from recur.ops.cuda.nvrtc import load_module

MIN_GRAPH_STEPS = 8
"""That are worth a graph."""


class _Steps(Structure):
    """As in launches.cpp, field by field."""

    _fields_ = [
        ("kernel", c_void_p),
        ("config", LaunchConfig),
        ("clip", c_void_p),
        ("clip_config", LaunchConfig),
        ("bound", c_uint64),
        ("arguments", c_void_p),
        *((name, c_int64) for name in ("step", "rows", "later", "product")),
        ("products", c_void_p),
        ("product_rows", c_void_p),
        ("product_count", c_int64),
        ("taken", c_void_p),
        *((name, c_int64) for name in ("steps", "H", "backward", "started")),
        *((name, c_int64) for name in ("a", "b", "c", "workspace", "workspace_bytes")),
    ]


class StepMatmuls(NamedTuple):
    """With W, of what a step left."""

    all: list[Matmul]
    """For fewer and fewer rows, the fewest first: sequences of a batch may end one by one."""
    described: ctypes.Array[MatmulDescriptor]
    rows: ctypes.Array[c_int64]
    workspace: int


class MatmulSignature(NamedTuple):
    """What products with W depend on. Batches whose sequences end one by one have a layout of their own each."""

    dtype: torch.dtype
    into: torch.dtype
    S: int
    H: int
    wide: int
    """All products of a unit's row side by side."""
    uniform: bool
    backward: bool
    tf32: bool
    device: int


@functools.lru_cache(maxsize=64)
def make_matmuls(form: MatmulSignature) -> StepMatmuls:
    """Asked of the current device, which is the form's."""
    H, wide, many = form.H, form.wide, [form.S]
    while not form.uniform and many[0] > 1:
        many.insert(0, -(-many[0] // 2))

    def made(S: int) -> Matmul:
        if form.backward:
            return Matmul(
                form.dtype, form.into, (S, H, wide), MatmulOperand(wide), MatmulOperand(H), H, False, form.tf32
            )
        return Matmul(
            form.dtype, form.into, (S, wide, H), MatmulOperand(H), MatmulOperand(H, True), wide, False, form.tf32
        )

    all = [made(S) for S in many]
    described = (MatmulDescriptor * len(all))(*(one.described for one in all))
    return StepMatmuls(all, described, (c_int64 * len(many))(*many), max_workspace(all))


class StepLauncher:
    """The steps of a pass, which are launched when it is called. `a`: what is multiplied, (S, …), which every step
    leaves to the next; `W`: whole, row after row."""

    def __init__(
        self, layout: ScanLayout, index: int, backward: bool, kernel: PreparedKernel, arguments: KernelArguments
    ) -> None:
        self._lay, self._index, self._kernel, self._alive = layout, index, kernel, list[object]()
        taken = (c_int32 * layout.steps)(*layout.counts)
        self._all = _Steps(
            kernel=kernel.handle,
            config=kernel.config,
            arguments=ctypes.addressof(arguments.struct),
            step=arguments.at("step"),
            rows=arguments.at("rows"),
            later=arguments.at("later") if backward else 0,
            product=arguments.at("product"),
            taken=ctypes.addressof(taken),
            steps=layout.steps,
            H=layout.H,
            backward=backward,
        )
        self._arguments, self._tf32, self._clipping = arguments, False, kernel
        self._alive.append(taken)

    def multiply(self, of: torch.Tensor, W: torch.Tensor, tf32: bool, started: bool) -> None:
        """Before every step, the first too if it `started` from a state."""
        layout, all = self._lay, self._all
        self._tf32 = tf32
        wide, back = layout.assembly.products * layout.H, bool(all.backward)
        found = make_matmuls(
            MatmulSignature(of.dtype, layout.real, layout.S, layout.H, wide, layout.uniform, back, tf32, self._index)
        )
        into = of.new_empty((layout.S, layout.H if back else wide), dtype=layout.real)
        workspace = of.new_empty(found.workspace, dtype=torch.uint8)
        all.products, all.product_rows = ctypes.addressof(found.described), ctypes.addressof(found.rows)
        all.product_count, all.started = len(found.all), started
        all.a, all.b, all.c = (part.data_ptr() for part in (of, W, into))
        all.workspace, all.workspace_bytes = workspace.data_ptr(), found.workspace
        self._alive += [found, of, W, into, workspace]

    def clip(self, kernel: PreparedKernel, bound: float) -> None:
        """The gradient that a step carries back."""
        number = c_double(bound) if self._lay.real == torch.float64 else c_float(bound)
        self._clipping = kernel
        self._all.clip, self._all.clip_config = kernel.handle, kernel.config
        self._all.bound = int.from_bytes(bytes(number), "little")

    def __call__(self) -> None:
        stream = current_raw_stream(self._index)
        if self._lay.steps < MIN_GRAPH_STEPS:
            self._launch(stream)
        else:
            graph_cache(self._index)(self._key(), self._lay.steps, stream, self._launch)

    def _key(self) -> Hashable:
        """All that its launches depend on."""
        all = self._all
        numbers = all.kernel, all.clip, all.bound, all.started, all.a, all.b, all.c, all.workspace, all.product_count
        return self._lay, self._tf32, numbers, bytes(self._arguments.struct)

    def _launch(self, stream: int) -> None:
        native, at = core(), c_int64()
        assert native is not None
        status = native.launch_steps(byref(launch_functions(self._index)), byref(self._all), stream, byref(at))
        if status:
            (self._kernel.check, blas.check, self._clipping.check)[at.value](status)


THREADS = 256


class StepKernels:
    """A cell's kernels of one step, for as many rows as asked for."""

    def __init__(self, layout: ScanLayout, index: int) -> None:
        self._lay, self._index = layout, index
        text = kernel_source(layout.of.cell, layout.of.dtype, ("step",))
        self._module = load_module(text, device_info(index).architecture, index)
        self._stream = current_raw_stream(index)
        self._prepared: dict[tuple[str, int], PreparedKernel] = {}

    def __call__(self, name: str, arguments: KernelArguments, rows: int) -> None:
        """A thread for each unit of so many rows."""
        self._launch(name, -(-rows * self._lay.H // THREADS))(self._stream, arguments.struct)

    def clip(self, arguments: KernelArguments, rows: int, bound: float) -> None:
        """A CTA for each row."""
        number = c_double(bound) if self._lay.real == torch.float64 else c_float(bound)
        self._launch("clip_carried", rows)(self._stream, arguments.struct, number)

    def stepping(self, name: str, backward: bool, arguments: KernelArguments) -> StepLauncher | None:
        """All steps by the C++ core, whose grids follow from their rows; None where Python takes them one by one."""
        if self._lay.P or core() is None:
            return None
        return StepLauncher(self._lay, self._index, backward, self._launch(name, 1), arguments)

    @property
    def clipping(self) -> PreparedKernel:
        return self._launch("clip_carried", 1)

    def _launch(self, name: str, grid: int) -> PreparedKernel:
        key = name, grid
        if key not in self._prepared:
            self._prepared[key] = self._module.function(name).prepare(LaunchSpec(grid, THREADS))
        return self._prepared[key]


def forward(ops: ScanOperands, results: ScanResults, train: bool) -> None:
    layout, a = ops.layout, ops.layout.assembly
    run = StepKernels(layout, ops.device.index)
    offset, length = layout.order(ops.device)
    new = ops.U.new_empty
    carry = [part.to(layout.real, copy=True) for part in ops.initial]
    carry = carry or [new(layout.S, width, dtype=layout.real).zero_() for width in layout.widths]
    inside = [new(layout.S, layout.H, dtype=layout.real), *carry[1:]] if layout.P else carry  # what the program returns
    started = bool(ops.initial and a.products)
    multiplied = ops.initial[0] * (1 if ops.mask is None else ops.mask) if started else None
    following = new(layout.S, layout.H) if a.products else None
    states = list(results.states)
    if layout.P and states[0] is None:
        states[0] = new(layout.N, layout.H)
    arguments = KernelArguments(a, False, steps=layout.steps, S=layout.S, H=layout.H).put(
        offset=offset,
        length=length,
        share=results.share,
        tape=results.tape,
        state=states,
        bias=ops.bias_hh,
        extra=ops.extras,
        mask=None if layout.P else ops.mask,
        exchange=None if layout.P else following,
        carry=inside,
    )
    name = "forward_train" if train else "forward_use"
    if (stepping := run.stepping(name, False, arguments)) is not None:
        if following is not None:
            if multiplied is not None:
                following.copy_(multiplied)
            stepping.multiply(following, ops.W.contiguous(), _in_tf32(layout), started)
        stepping()
    else:
        with float32_precision(layout.of.dtype):
            _forward_by_python(ops, results, run, name, arguments, carry, states, multiplied, following)
    for into, part in zip(results.finals, carry, strict=True):
        into.copy_(part)


def _forward_by_python(
    ops: ScanOperands,
    results: ScanResults,
    run: StepKernels,
    name: str,
    arguments: KernelArguments,
    carry: list[Tensor],
    states: list[Tensor | None],
    multiplied: Tensor | None,
    following: Tensor | None,
) -> None:
    layout = ops.layout
    first = 0
    for k, rows in enumerate(layout.counts):
        product = None
        if multiplied is not None:
            product = multiply(multiplied[:rows], ops.W.t(), layout.real)
        arguments.number("step", k)
        arguments.number("rows", rows)
        arguments.put(product=product)
        run(name, arguments, rows)
        multiplied = following
        if layout.P:
            assert ops.R is not None
            assert states[0] is not None
            carry[0][:rows] = multiply(states[0][first : first + rows], ops.R.t(), layout.real)
            results.first[first : first + rows] = carry[0][:rows]
            multiplied = carry[0].to(layout.of.dtype) * (1 if ops.mask is None else ops.mask)
        first += rows


def _in_tf32(layout: ScanLayout) -> bool:
    return layout.of.dtype == torch.float32 and uses_tf32()


def backward(ops: ScanOperands, results: ScanResults, found: ScanGradients, traced: bool) -> None:
    layout, a = ops.layout, ops.layout.assembly
    run = StepKernels(layout, ops.device.index)
    offset, length = layout.order(ops.device)
    new = ops.U.new_empty
    carry = [
        new(layout.S, width, dtype=layout.real).zero_() if part is None else part.to(layout.real, copy=True)
        for width, part in zip(layout.widths, found.d_final, strict=True)
    ]
    inside = [new(layout.S, layout.H, dtype=layout.real), *carry[1:]] if layout.P else carry
    exchange = new(layout.S, a.products * layout.H)
    arguments = KernelArguments(a, True, steps=layout.steps, S=layout.S, H=layout.H).put(
        offset=offset,
        length=length,
        share=results.share,
        tape=results.tape,
        state=results.states,
        initial=ops.initial,
        extra=ops.extras,
        mask=None if layout.P else ops.mask,
        d_outputs=[None] * a.states if layout.P else found.d_outputs,
        xi=None if layout.P else ops.xi,
        d_share=found.d_share,
        d_own=found.d_own,
        d_state=found.d_state,
        sums=found.sums,
        carry=inside,
        exchange=exchange,
    )
    name, later = "backward_trace" if traced else "backward_back", layout.counts[0]
    if (stepping := run.stepping(name, True, arguments)) is not None:
        if a.products:
            stepping.multiply(exchange, ops.W.contiguous(), _in_tf32(layout), False)
        if layout.of.clip:
            stepping.clip(run.clipping, layout.of.clip)
        stepping()
    with float32_precision(layout.of.dtype):
        if stepping is None:
            _backward_by_python(ops, found, run, name, arguments, carry, inside, exchange)
        product = multiply(exchange, ops.W, layout.real) if a.products else None
        carry_back(ops, carry, product, later, 0)
    found.carried = carry


def _backward_by_python(
    ops: ScanOperands,
    found: ScanGradients,
    run: StepKernels,
    name: str,
    arguments: KernelArguments,
    carry: list[Tensor],
    inside: list[Tensor],
    exchange: Tensor,
) -> None:
    layout, a = ops.layout, ops.layout.assembly
    bound, later, end = layout.of.clip, 0, layout.N
    for k, rows in reversed(list(enumerate(layout.counts))):
        end -= rows
        product = multiply(exchange[:later], ops.W, layout.real) if a.products and later else None
        if layout.P:
            carry_back(ops, carry, product, later, end + rows)
            assert ops.R is not None
            assert found.d_projected is not None
            whole = found.d_projected[end : end + rows]
            whole.copy_(carry[0][:rows])
            if found.d_outputs[0] is not None:
                whole += found.d_outputs[0][end : end + rows]
            inside[0][:rows] = multiply(whole, ops.R, layout.real)
            product, later = None, 0
        arguments.number("step", k)
        arguments.number("rows", rows)
        arguments.number("later", later)
        arguments.put(product=product)
        if bound and later:
            run.clip(arguments, later, bound)
            arguments.number("later", 0)
            arguments.put(product=None)
        run(name, arguments, rows)
        later = rows


def carry_back(ops: ScanOperands, carry: Sequence[Tensor], product: Tensor | None, later: int, first: int) -> None:
    """What a step of `later` rows, which begin at `first`, carries back to the step before: by operations of PyTorch,
    for states of different widths and for the state before the first step."""
    layout = ops.layout
    if not later:
        return
    parts = [part[:later] for part in carry]
    if product is not None:
        through = product if ops.mask is None else product * ops.mask[:later]
        # A projected state reaches the next step through W alone.
        parts[0].copy_(through if layout.P else parts[0] + through)
    if ops.xi is not None:
        xi = ops.xi[first : first + later, None]
        for part in parts:
            part.copy_(torch.where(xi == 0, 0, part * xi))
    if layout.of.clip:
        norm = torch.cat(parts, dim=-1).norm(dim=-1, keepdim=True)
        for part in parts:
            part.mul_((layout.of.clip / norm).clamp(max=1))
