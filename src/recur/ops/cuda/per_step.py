"""One launch per step, after a cuBLAS matmul with W. It runs every cell and option on every GPU.

The C++ core makes all launches in one call (launches.cpp), as a CUDA graph if they are repeated. Other kernels are
tested against this implementation.
"""

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
from recur.ops.cuda.launches import core, graph_cache, launch_functions, max_workspace
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
"""Number of steps from which on a graph is worthwhile."""


class _Steps(Structure):
    """Struct `Steps` of launches.cpp."""

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
    """Matmuls of W with the states of the previous step."""

    all: list[Matmul]
    """Matmuls for different numbers of rows, the fewest first: sequences of a batch may end at different steps."""
    described: ctypes.Array[MatmulDescriptor]
    rows: ctypes.Array[c_int64]
    workspace: int


class MatmulSignature(NamedTuple):
    """Cache key of the matmuls with W."""

    dtype: torch.dtype
    into: torch.dtype
    S: int
    H: int
    wide: int
    """Number of columns of all products together."""
    uniform: bool
    backward: bool
    tf32: bool
    device: int


@functools.lru_cache(maxsize=64)
def make_matmuls(form: MatmulSignature) -> StepMatmuls:
    """Prepare the matmuls on the current device."""
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
    """Steps of a pass, which are launched when the object is called."""

    def __init__(
        self, layout: ScanLayout, index: int, backward: bool, kernel: PreparedKernel, arguments: KernelArguments
    ) -> None:
        self._layout, self._index, self._kernel, self._alive = layout, index, kernel, list[object]()
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
        """Add a matmul of `of`, (S, …), with the dense W before every step; before the first only if `started`."""
        layout, all = self._layout, self._all
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
        """Clip the gradient that a step passes back."""
        number = c_double(bound) if self._layout.real == torch.float64 else c_float(bound)
        self._clipping = kernel
        self._all.clip, self._all.clip_config = kernel.handle, kernel.config
        self._all.bound = int.from_bytes(bytes(number), "little")

    def __call__(self) -> None:
        stream = current_raw_stream(self._index)
        if self._layout.steps < MIN_GRAPH_STEPS:
            self._launch(stream)
        else:
            graph_cache(self._index)(self._key(), self._layout.steps, stream, self._launch)

    def _key(self) -> Hashable:
        """Return a key of everything that the launches depend on."""
        all = self._all
        numbers = all.kernel, all.clip, all.bound, all.started, all.a, all.b, all.c, all.workspace, all.product_count
        return self._layout, self._tf32, numbers, bytes(self._arguments.struct)

    def _launch(self, stream: int) -> None:
        native, at = core(), c_int64()
        assert native is not None
        status = native.launch_steps(byref(launch_functions(self._index)), byref(self._all), stream, byref(at))
        if status:
            (self._kernel.check, blas.check, self._clipping.check)[at.value](status)


THREADS = 256


class StepKernels:
    """Kernels that run one step of a cell."""

    def __init__(self, layout: ScanLayout, index: int) -> None:
        self._layout, self._index = layout, index
        text = kernel_source(layout.of.cell, layout.of.dtype, ("step",))
        self._module = load_module(text, device_info(index).architecture, index)
        self._stream = current_raw_stream(index)
        self._prepared: dict[tuple[str, int], PreparedKernel] = {}

    def __call__(self, name: str, arguments: KernelArguments, rows: int) -> None:
        """Launch one thread for each unit of the rows."""
        self._launch(name, -(-rows * self._layout.H // THREADS))(self._stream, arguments.struct)

    def clip(self, arguments: KernelArguments, rows: int, bound: float) -> None:
        """Launch one CTA for each row."""
        number = c_double(bound) if self._layout.real == torch.float64 else c_float(bound)
        self._launch("clip_carried", rows)(self._stream, arguments.struct, number)

    def make_launcher(self, name: str, backward: bool, arguments: KernelArguments) -> StepLauncher | None:
        """Return a launcher of all steps by the C++ core; None if Python has to launch them one by one."""
        if self._layout.P or core() is None:
            return None
        return StepLauncher(self._layout, self._index, backward, self._launch(name, 1), arguments)

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
        offset=offset, length=length, share=results.share, tape=results.tape, state=states, bias=ops.bias_hh,
        extra=ops.extras, mask=None if layout.P else ops.mask, exchange=None if layout.P else following, carry=inside,
    )  # fmt: skip
    name = "forward_train" if train else "forward_use"
    if (launcher := run.make_launcher(name, False, arguments)) is not None:
        if following is not None:
            if multiplied is not None:
                following.copy_(multiplied)
            launcher.multiply(following, ops.W.contiguous(), _in_tf32(layout), started)
        launcher()
    else:
        with float32_precision(layout.of.dtype):
            _forward_by_python(ops, results, run, name, arguments, carry, states, multiplied, following)
    for into, part in zip(results.finals, carry, strict=True):
        into.copy_(part)


def _forward_by_python(
    ops: ScanOperands, results: ScanResults, run: StepKernels, name: str, arguments: KernelArguments,
    carry: list[Tensor], states: list[Tensor | None], multiplied: Tensor | None, following: Tensor | None,
) -> None:  # fmt: skip
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
        offset=offset, length=length, share=results.share, tape=results.tape, state=results.states, initial=ops.initial,
        extra=ops.extras, mask=None if layout.P else ops.mask, d_outputs=[None] * a.states if layout.P else
        found.d_outputs, xi=None if layout.P else ops.xi, d_share=found.d_share, d_own=found.d_own,
        d_state=found.d_state, sums=found.sums, carry=inside, exchange=exchange,
    )  # fmt: skip
    name, later = "backward_trace" if traced else "backward_back", layout.counts[0]
    if (launcher := run.make_launcher(name, True, arguments)) is not None:
        if a.products:
            launcher.multiply(exchange, ops.W.contiguous(), _in_tf32(layout), False)
        if layout.of.clip:
            launcher.clip(run.clipping, layout.of.clip)
        launcher()
    with float32_precision(layout.of.dtype):
        if launcher is None:
            _backward_by_python(ops, found, run, name, arguments, carry, inside, exchange)
        product = multiply(exchange, ops.W, layout.real) if a.products else None
        carry_back(ops, carry, product, later, 0)
    found.carried = carry


def _backward_by_python(
    ops: ScanOperands, found: ScanGradients, run: StepKernels, name: str, arguments: KernelArguments,
    carry: list[Tensor], inside: list[Tensor], exchange: Tensor,
) -> None:  # fmt: skip
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
    """Pass the gradient of a step with `later` rows, from row `first` on, back to the previous step, in PyTorch.

    This is used for states of different widths and for the initial state.
    """
    layout = ops.layout
    if not later:
        return
    parts = [part[:later] for part in carry]
    if product is not None:
        through = product if ops.mask is None else product * ops.mask[:later]
        # A projected state reaches the next step only through W.
        parts[0].copy_(through if layout.P else parts[0] + through)
    if ops.xi is not None:
        xi = ops.xi[first : first + later, None]
        for part in parts:
            part.copy_(torch.where(xi == 0, 0, part * xi))
    if layout.of.clip:
        norm = torch.cat(parts, dim=-1).norm(dim=-1, keepdim=True)
        for part in parts:
            part.mul_((layout.of.clip / norm).clamp(max=1))
