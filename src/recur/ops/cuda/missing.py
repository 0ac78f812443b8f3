"""Why there can be no kernels on a GPU."""

from __future__ import annotations

import functools

from recur.ops.cuda import blas, nvrtc
from recur.ops.cuda.device import device
from recur.ops.cuda.driver import driver

OLDEST = 8, 0
"""The compute capability from which on there is all that the kernels use."""


@functools.cache
def missing(index: int) -> str | None:
    """What is missing for the GPU of this index, or None."""
    found = device(index)
    if (found.major, found.minor) < OLDEST:
        return f"{found.name} has compute capability {found.major}.{found.minor}, and kernels need 8.0"
    if driver() is None:
        return "the CUDA driver (libcuda) was not found, or is older than CUDA 12"
    if blas.library() is None:
        return f"cuBLAS, which torch's CUDA wheels carry, was not found: {' nor '.join(blas.names())}"
    compiler = nvrtc.compiler()
    if compiler is None:
        return nvrtc.missing()
    if 10 * found.major + found.minor not in compiler.architectures:
        return f"NVRTC {compiler.version} does not know {found.architecture} of {found.name}"
    return None
