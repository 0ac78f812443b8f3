"""Kernels that run all steps of a scan in one launch.

Persistent kernels keep W on the chip; see kernels/persistent.cu. Element-wise recurrences, without a recurrent matmul,
have their own kernel; see kernels/time.cu. One thread runs one unit of one segment. With too few units to keep the
memory busy, several threads each take a slice of time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch

from recur.ops.cuda.codegen import affine_states, kernel_source, read_indices
from recur.ops.cuda.config import (
    CLUSTER,
    GRID,
    ElementwiseConfig,
    ElementwiseWork,
    KernelConfig,
    ScanShape,
    register_pressure,
    round_up_rows,
)
from recur.ops.cuda.driver import DeviceInfo, LaunchSpec, PreparedKernel, device_info
from recur.ops.cuda.layout import ScanLayout, uses_tf32
from recur.ops.cuda.nvrtc import compile_cached, load_module

MAX_STACK_BYTES = 128
"""Bytes of stack that a kernel may have: spilled registers are read and written at every step."""
MAX_COMPILE_TRIES = 3
"""Attempts to compile a kernel with fewer weights in registers."""


def scan_shape(layout: ScanLayout, backward: bool, directions: int = 1) -> ScanShape:
    a, dtype = layout.assembly, layout.of.dtype
    exact = dtype == torch.float32 and not uses_tf32()
    pressure, resting = register_pressure(a, backward)
    rows = round_up_rows(layout.S)
    return ScanShape(a.products, rows, layout.H, dtype.itemsize, backward, exact, pressure, resting, directions)


def kernel_text(
    cell: str, dtype: torch.dtype, p: ScanShape, config: KernelConfig, variant: bool, delays: int = 0
) -> str:
    """Return the source of a kernel. `variant`: training in the forward pass, traced in the backward pass."""
    options = (*config.options(p), ("TRACE" if p.backward else "TRAIN", int(variant)), ("DELAYS", delays))
    return kernel_source(cell, dtype, ("mma", "persistent", "exchange", _kernel_name(p)), options)


def _kernel_name(p: ScanShape) -> str:
    return "carry_backward" if p.backward else "carry_forward"


@functools.lru_cache(maxsize=1024)
def fit_registers(
    cell: str, dtype: torch.dtype, p: ScanShape, config: KernelConfig, here: DeviceInfo, variant: bool, delays: int = 0
) -> KernelConfig | None:
    """Return the configuration with so few weights in registers that the kernel does not spill; None if none is."""
    for _ in range(MAX_COMPILE_TRIES):
        if config.shared_bytes(p) > here.shared:
            return None
        usage = compile_cached(kernel_text(cell, dtype, p, config, variant, delays), here.architecture).usage.get(
            _kernel_name(p)
        )
        if usage is None or usage.stack <= MAX_STACK_BYTES:
            return config
        lighter = free_registers(p, config, usage.stack // 4, here)
        if lighter is None:
            return None
        config = lighter
    return None


def free_registers(p: ScanShape, config: KernelConfig, registers: int, here: DeviceInfo) -> KernelConfig | None:
    """Move weights out of a number of registers, into shared memory as far as it has room; None if W uses fewer."""
    group = config.group_registers(p)
    fewer = config.with_changes(
        in_registers=min(config.in_registers, config.groups_each(p)) - -(-registers // group), in_shared=0
    )
    if fewer.in_registers < 0:
        return None
    room = (here.shared - fewer.shared_bytes(p)) // (config.m_each(p) * 32 * config.threads)
    return fewer.with_changes(in_shared=min(fewer.groups_each(p) - fewer.in_registers, room))


@functools.lru_cache(maxsize=1024)
def prepare_persistent(
    cell: str, dtype: torch.dtype, p: ScanShape, config: KernelConfig, index: int, variant: bool, delays: int = 0
) -> tuple[KernelConfig, PreparedKernel] | None:
    """Compile and load a kernel; return it with its final configuration, or None if a team does not fit on the GPU."""
    own = fit_registers(cell, dtype, p, config, device_info(index), variant, delays)
    if own is None:
        return None
    function = load_module(
        kernel_text(cell, dtype, p, own, variant, delays), device_info(index).architecture, index
    ).function(_kernel_name(p))
    cluster = own.ctas if own.exchange == CLUSTER else own.multicast
    how = LaunchSpec(
        p.directions * own.teams * own.ctas, own.threads, own.shared_bytes(p), cluster, own.exchange == GRID
    )
    prepared = function.prepare(how)
    resident = prepared.resident()
    fits = resident >= how.grid if own.exchange == GRID else resident >= own.ctas
    return (own, prepared) if fits else None


def elementwise_unsupported(layout: ScanLayout) -> str | None:
    """Return the reason why a scan is not an element-wise recurrence, or None."""
    if layout.assembly.products:
        return "the cell multiplies its state by W"
    if layout.of.clip:
        return "clip needs all units of a step at once"
    return None


def vector_width(layout: ScanLayout, aligned: bool) -> int:
    """Return the adjacent units per thread: two of 16 bits, if they are aligned to 4 bytes."""
    return 2 if aligned and layout.of.dtype.itemsize == 2 and layout.H % 2 == 0 else 1


def describe_work(layout: ScanLayout, backward: bool, train: bool, aligned: bool) -> ElementwiseWork:
    a = layout.assembly
    if backward:
        count = sum(
            len({*read_indices(a.back, kind), *read_indices(a.trace, kind)}) for kind in ("share", "before", "after")
        )
        count += a.saved + len(a.outputs) + layout.of.weighted
    else:
        count = len(read_indices(a.train if train else a.use, "share"))
    states = len(affine_states(a.along_time["back" if backward else "use"])) if a.along_time else 0
    vector = vector_width(layout, aligned)
    return ElementwiseWork(
        layout.S * layout.H // vector, layout.steps, max(1, count), layout.of.dtype.itemsize, states, vector
    )


@functools.lru_cache(maxsize=256)
def prepare_elementwise(
    layout: ScanLayout, backward: bool, train: bool, aligned: bool, index: int, slices: int | None
) -> PreparedKernel:
    """Compile and load the kernel of a pass.

    Args:
        train: training in the forward pass, traced in the backward pass.
        aligned: all tensors are aligned to 4 bytes.
        slices: forced number of slices of time.
    """
    todo = describe_work(layout, backward, train, aligned)
    chosen = ElementwiseConfig.of(todo, device_info(index), slices)
    a = layout.assembly
    options = {
        **chosen._asdict(),
        "trace" if backward else "train": train,
        "ragged": not layout.uniform,
        "vector": todo.vector,
        "weighted": backward and layout.of.weighted,
    }
    options |= {"outputs": bit_mask(a.outputs), "kept": bit_mask(range(a.states) if train else a.outputs)}
    defined = tuple((name.upper(), int(value)) for name, value in options.items())
    bodies = ("affine_maps", "fetch", "time", "elementwise_backward" if backward else "elementwise_forward")
    text = kernel_source(layout.of.cell, layout.of.dtype, bodies, defined)
    module = load_module(text, device_info(index).architecture, index)
    launch = LaunchSpec(-(-todo.columns // chosen.units), chosen.threads, chosen.shared(todo))
    return module.function("elementwise_backward" if backward else "elementwise_forward").prepare(launch)


def bit_mask(indices: Iterable[int]) -> int:
    """Return an integer with these bits set."""
    return sum(1 << k for k in indices)
