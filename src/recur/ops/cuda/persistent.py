"""Persistent kernels: all steps of a scan in one launch, with W on the chip. See kernels/persistent.cu."""

from __future__ import annotations

import functools

import torch

from recur.ops.cuda.codegen import kernel_source
from recur.ops.cuda.config import CLUSTER, GRID, KernelConfig, ScanShape, register_pressure, round_up_rows
from recur.ops.cuda.driver import DeviceInfo, LaunchSpec, PreparedKernel, device_info
from recur.ops.cuda.layout import ScanLayout, uses_tf32
from recur.ops.cuda.nvrtc import compile_cached, load_module

MAX_STACK_BYTES = 128
"""Bytes of stack that a kernel may have: spilled registers are read and written at every step."""
MAX_COMPILE_TRIES = 3
"""Attempts to compile a kernel with fewer weights in registers."""


def scan_shape(layout: ScanLayout, backward: bool, directions: int = 1) -> ScanShape:
    exact = layout.of.dtype == torch.float32 and not uses_tf32()
    a = layout.assembly
    size = layout.of.dtype.itemsize
    return ScanShape(
        a.products,
        round_up_rows(layout.S),
        layout.H,
        size,
        backward,
        exact,
        *register_pressure(a, backward),
        directions,
    )


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
def prepare_kernel(
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
