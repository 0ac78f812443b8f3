"""Element-wise recurrences, without a recurrent matmul: all steps in one launch. See kernels/time.cu.

One thread runs one unit of one segment. With too few units to keep the memory busy, several threads each take a
slice of time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from recur.ops.cuda.codegen import affine_states, kernel_source, read_indices
from recur.ops.cuda.config import ElementwiseConfig, ElementwiseWork
from recur.ops.cuda.driver import LaunchSpec, PreparedKernel, device_info
from recur.ops.cuda.layout import ScanLayout
from recur.ops.cuda.nvrtc import load_module


def unsupported_reason(layout: ScanLayout) -> str | None:
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
def prepare_kernel(
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
