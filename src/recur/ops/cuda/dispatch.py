"""Entry point of the CUDA backend: choose a kernel and run the forward or backward pass of a scan on tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from recur.compiler.assembly import Assembly, load_assembly
from recur.compiler.programs import Signature
from recur.ops.cuda import blas, nvrtc, persistent, tuning
from recur.ops.cuda.codegen import DTYPE_CODES
from recur.ops.cuda.config import KernelConfig, Overrides, ScanShape, active_overrides
from recur.ops.cuda.driver import bind_context, device_info, load_driver
from recur.ops.cuda.heuristics import list_configs, order_configs
from recur.ops.cuda.launches import ChosenKernel
from recur.ops.cuda.layout import ScanLayout, scan_layout, uses_tf32
from recur.ops.cuda.passes import BackwardPass, BackwardRequest, ForwardPass
from recur.ops.cuda.tuning import TuningKey

Tensors = list[Tensor]

DTYPES = tuple(DTYPE_CODES)


def choose_kernel(
    layout: ScanLayout, index: int, backward: bool, variant: bool, directions: int = 1
) -> ChosenKernel | None:
    """Choose the persistent kernel of a pass; None means one launch per step, or an element-wise kernel."""
    if layout.not_persistent:
        return None
    key = index, backward, variant, uses_tf32(), directions
    forced = active_overrides()
    if not forced.changes_kernels and key in layout.plans:
        kept: ChosenKernel | None = layout.plans[key]
        return kept
    p = persistent.scan_shape(layout, backward, directions)
    found = _choose_kernel(layout.of.cell, layout.of.dtype, p, index, variant, forced)
    if not forced.changes_kernels:
        layout.plans[key] = found
    return found


@functools.lru_cache(maxsize=1024)
def _choose_kernel(
    cell: str, dtype: torch.dtype, p: ScanShape, index: int, variant: bool, forced: Overrides
) -> ChosenKernel | None:
    found = (
        order_by_table(load_assembly(cell), dtype, p, index)
        if forced.select is None
        else forced.select(p, list_configs(p, device_info(index)))
    )
    for config in found:
        if config is None:
            return None
        prepared = persistent.prepare_persistent(cell, dtype, p, config, index, variant, forced.delays)
        if prepared is not None:
            return p, *prepared
    return None


def tuning_key(a: Assembly, dtype: torch.dtype, p: ScanShape) -> TuningKey:
    """Return the key of a scan in tuning tables."""
    single = "exact" if p.exact else "tf32"
    numbers = single if dtype == torch.float32 else str(dtype).removeprefix("torch.")
    return TuningKey(a.products, a.gates, p.H, p.directions * p.S, numbers, "backward" if p.backward else "forward")


def order_by_table(a: Assembly, dtype: torch.dtype, p: ScanShape, index: int) -> list[KernelConfig | None]:
    """Return all configurations, the fastest by the tuning table of the GPU first."""
    here = device_info(index)
    known = tuning.load_table(here.name)
    entry = known.nearest(tuning_key(a, dtype, p)) if known else None
    if entry is None:
        return order_configs(p, here)
    if not entry.config:
        return order_configs(p, here, by_steps=True)
    try:
        return order_configs(p, here, KernelConfig(**{name: int(value) for name, value in entry.config.items()}))
    except (TypeError, ValueError):  # a table written by hand or by another version
        return order_configs(p, here)


def time_relative_to_cudnn(of: Signature, index: int, train: bool) -> float | None:
    """Return our time divided by cuDNN's for similar scans, by the tuning table; None if unknown."""
    layout, known = scan_layout(of), tuning.load_table(device_info(index).name)
    if known is None or layout.not_persistent:
        return None
    passes = [persistent.scan_shape(layout, backward) for backward in ((False, True) if train else (False,))]
    return known.relative_to_cudnn([tuning_key(layout.assembly, of.dtype, p) for p in passes])


def describe(of: Signature, index: int, train: bool, traced: bool, directions: int = 1) -> str:
    """Describe how the steps of a scan are run."""
    layout = scan_layout(of)
    if persistent.elementwise_unsupported(layout) is None:
        return "element-wise recurrence, one launch"
    configs = [choose_kernel(layout, index, False, train, directions)]
    configs += [choose_kernel(layout, index, True, traced, directions)] if train else []
    said = [found[1].describe() if found else "one launch per step" for found in configs]
    why = f" ({layout.not_persistent})" if layout.not_persistent else ""
    return "; backward: ".join(dict.fromkeys(said)) + why


def on_device(device: torch.device) -> AbstractContextManager[None]:
    """Make a device the current one inside a `with` block; nearly always, it already is."""
    if torch.cuda.current_device() != device.index:
        return torch.cuda.device(device)
    bind_context(device.index)
    return nullcontext()


def forward(of: Signature, given: Sequence[Tensor], train: bool) -> Tensors:
    """Return outputs, final states, and the tensors that the backward pass needs besides them."""
    index = given[0].device.index
    with on_device(given[0].device):
        key = of, train, index, uses_tf32()
        made = _forward_pass(*key) if not active_overrides().changes_kernels else _forward_pass.__wrapped__(*key)
        return made(given)


@functools.lru_cache(maxsize=512)
def _forward_pass(of: Signature, train: bool, index: int, tf32: bool) -> ForwardPass:
    layout = scan_layout(of)
    return ForwardPass(layout, train, index, tf32, choose_kernel(layout, index, False, train))


def shapes(of: Signature, data: Tensor, train: bool) -> Tensors:
    """Return empty tensors with the shapes that `forward` returns. Sizes may be symbolic and are not used as cache
    keys.
    """
    layout = ScanLayout(of)
    return layout.shown(layout.empty_results(data, train))


def can_go_together(of: Signature, index: int, train: bool) -> bool:
    """Return True if one launch can run both directions of such a scan, forward and, for training, backward."""
    layout = scan_layout(of)
    if layout.not_persistent or not layout.uniform or of.masked or of.weighted:
        return False
    with on_device(torch.device("cuda", index)):
        forward = choose_kernel(layout, index, False, train, 2)
        return forward is not None and (not train or choose_kernel(layout, index, True, False, 2) is not None)


def forward_together(of: Signature, given: Sequence[Tensor], others: Sequence[Tensor], train: bool) -> Tensors:
    """Run two scans over x, one in each direction."""
    index = given[0].device.index
    with on_device(given[0].device):
        here, there = _forward_passes(of, train, index, uses_tf32(), active_overrides())
        return here.run_bidirectional(given, there, others)


@functools.lru_cache(maxsize=256)
def _forward_passes(
    of: Signature, train: bool, index: int, tf32: bool, forced: Overrides
) -> tuple[ForwardPass, ForwardPass]:
    layout = scan_layout(of)
    chosen = choose_kernel(layout, index, False, train, 2)
    return ForwardPass(layout, train, index, tf32, chosen), ForwardPass(layout, train, index, tf32, chosen, True)


def backward_together(
    of: Signature,
    kept: Sequence[Sequence[Tensor]],
    gradients: Sequence[Sequence[Tensor | None]],
    for_data: bool,
    for_state: bool,
    overwrite_saved: bool,
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Return the gradients of two such scans; the first result has the gradient of x."""
    index = kept[0][0].device.index
    with on_device(kept[0][0].device):
        arriving = tuple([tuple([part is not None for part in parts]) for parts in gradients])
        key = of, arriving, for_data, for_state, overwrite_saved, index, uses_tf32(), active_overrides()
        here, there = _backward_passes(*key)
        return here.run_bidirectional(kept[0], gradients[0], there, kept[1], gradients[1])


@functools.lru_cache(maxsize=256)
def _backward_passes(
    of: Signature,
    arriving: tuple[tuple[bool, ...], ...],
    for_data: bool,
    for_state: bool,
    overwrite: bool,
    index: int,
    tf32: bool,
    forced: Overrides,
) -> tuple[BackwardPass, BackwardPass]:
    layout = scan_layout(of)
    chosen = choose_kernel(layout, index, True, False, 2)
    asked = [BackwardRequest(came, for_data, for_state, False, overwrite) for came in arriving]
    first = BackwardPass(layout, asked[0], index, tf32, chosen)
    return first, BackwardPass(layout, asked[1], index, tf32, chosen, True)


def whole(of: Signature, results: Tensors) -> Tensors:
    """Return the results as they are: kernels write all elements."""
    return results


def gradient_shapes(of: Signature, given: Sequence[Tensor], traced: bool) -> Tensors:
    """Return empty tensors with the shapes of all gradients and of what a trace records."""
    layout = ScanLayout(of)
    found = [part.new_empty(part.shape) for part in given[: of.differentiable]]
    found[0] = layout.by_row(given[0].new_empty(layout.N, layout.D))
    return found + [given[0].new_empty(shape) for shape in (layout.recorded if traced else [])]


def backward(
    of: Signature,
    kept: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    for_data: bool,
    for_state: bool,
    traced: bool,
    overwrite_saved: bool = False,
) -> tuple[list[Tensor | None], Tensors]:
    """Return the gradients, None for those not requested, and the tensors that a trace records."""
    index = kept[0].device.index
    with on_device(kept[0].device):
        arriving = tuple([part is not None for part in gradients])
        key = of, BackwardRequest(arriving, for_data, for_state, traced, overwrite_saved), index, uses_tf32()
        made = _backward_pass(*key) if not active_overrides().changes_kernels else _backward_pass.__wrapped__(*key)
        return made(kept, gradients)


@functools.lru_cache(maxsize=512)
def _backward_pass(of: Signature, asked: BackwardRequest, index: int, tf32: bool) -> BackwardPass:
    layout = scan_layout(of)
    return BackwardPass(layout, asked, index, tf32, choose_kernel(layout, index, True, asked.traced))


MIN_CAPABILITY = 8, 0
"""Lowest compute capability that has all instructions of the kernels."""


@functools.cache
def missing_reason(index: int) -> str | None:
    """Return the reason why a GPU cannot run the kernels, or None."""
    found = device_info(index)
    if (found.major, found.minor) < MIN_CAPABILITY:
        return f"{found.name} has compute capability {found.major}.{found.minor}, and kernels need 8.0"
    if load_driver() is None:
        return "the CUDA driver (libcuda) was not found, or is older than CUDA 12"
    if blas.library() is None:
        return f"cuBLAS, which torch's CUDA wheels carry, was not found: {' nor '.join(blas.library_names())}"
    compiler = nvrtc.load_compiler()
    if compiler is None:
        return nvrtc.compiler_missing_reason()
    if 10 * found.major + found.minor not in compiler.architectures:
        return f"NVRTC {compiler.version} does not know {found.architecture} of {found.name}"
    return None
