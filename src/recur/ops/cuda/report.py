"""Report on the GPU of this machine for `recur doctor`: which kernels work, and why others do not."""

from __future__ import annotations

import os
from ctypes import byref, c_int
from typing import Any

import torch

from recur.errors import RecurError
from recur.ops.cuda import nvrtc, tuning
from recur.ops.cuda.config import CLUSTER, EXCHANGE_NAMES, GRID, SINGLE_CTA
from recur.ops.cuda.dispatch import missing_reason
from recur.ops.cuda.driver import DeviceInfo, device_info, load_driver
from recur.ops.cuda.timing import TimedLayer, force_config

PER_STEP = "one launch per step"
SIZES = {SINGLE_CTA: (5, 32), CLUSTER: (5, 128), GRID: (5, 512)}
"""Rows and units of the small layer that tests each exchange."""
TOLERANCE = 2e-2
"""Relative tolerance of bfloat16 products that are summed in another order."""


def gpu_report(index: int = 0) -> dict[str, Any]:
    """Return the full report; without a GPU, what is installed for one."""
    found: dict[str, Any] = {"compiler": describe_compiler(), "cache": describe_cache()}
    reason = no_gpu()
    if reason is None:
        here = device_info(index)
        found |= {
            "name": here.name,
            "capability": f"{here.major}.{here.minor}",
            "multiprocessors": here.multiprocessors,
            "shared_kib": here.shared // 1024,
            "driver": driver_version(),
            "table": describe_table(here.name),
        }
        reason = missing_reason(index)
    if reason is not None:
        return found | {"missing": reason}
    return found | {"exchanges": check_exchanges(index)}


def no_gpu() -> str | None:
    if torch.cuda.is_available():
        return None
    return "torch sees no GPU" if torch.version.cuda else "this torch is built for the CPU alone"


def describe_compiler() -> str:
    found = nvrtc.load_compiler()
    return str(nvrtc.compiler_missing_reason()) if found is None else f"NVRTC {found.version}, {found.path}"


def driver_version() -> str:
    """Return the newest CUDA version that the driver supports."""
    found, version = load_driver(), c_int()
    if found is None or found.cuda.cuDriverGetVersion(byref(version)):
        return "not found"
    return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"


def describe_cache() -> str:
    """Return the folder of cached kernels, and whether it can be written."""
    folder = nvrtc.cache_folder()
    there = next((part for part in (folder, *folder.parents) if part.exists()), folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return f"{folder}: cannot be written; set RECUR_CACHE to a folder that can"
    return f"{folder}: {len(list(folder.glob('*.cubin')))} kernels"


def describe_table(name: str) -> str:
    found = tuning.load_table(name)
    if found is None:
        return "none for this GPU: kernels are chosen by an estimate; recur doctor --tune measures them"
    own = tuning.user_file(name)
    return f"{len(found.entries)} problems, {own if own.exists() else 'shipped'}"


def check_exchanges(index: int) -> dict[str, str]:
    """Check one launch per step and every exchange of persistent kernels: "works", or the reason why not."""
    return {PER_STEP: check_per_step(index)} | {
        EXCHANGE_NAMES[exchange]: check_persistent(index, exchange) for exchange in SIZES
    }


def check_per_step(index: int) -> str:
    """Check that one launch per step runs and gives finite numbers; the other kernels are compared with it."""
    try:
        layer = TimedLayer("lstm", 5, 32, torch.bfloat16, index, steps=4)
        with force_config(None):
            results = layer.forward()
            finite = all(bool(part.isfinite().all()) for part in [results[0], *layer.backward(results)])
        return "works" if finite else "gives NaN or infinity"
    except (RecurError, RuntimeError, MemoryError) as error:
        return _describe_failure(error)


def check_persistent(index: int, exchange: int) -> str:
    """Compare the forward and backward pass of a small layer with one launch per step."""
    reason = exchange_unsupported_reason(device_info(index), exchange)
    if reason is not None:
        return reason
    S, H = SIZES[exchange]
    try:
        layer = TimedLayer("lstm", S, H, torch.bfloat16, index, steps=20)
        with force_config(None):
            expected = layer.forward()
            slopes = layer.backward(expected)
        for backward in (False, True):
            fits = (
                config
                for config in layer.configs(backward)
                if config.exchange == exchange and layer.has(config, backward)
            )
            config = next(fits, None)
            if config is None:
                return f"does not fit {'backward' if backward else 'forward'}: registers, shared memory or CTAs at once"
            with force_config(config):
                got = layer.backward(expected) if backward else layer.forward()[:1]
            for a, b in zip(got, slopes if backward else expected, strict=False):
                if not _near(a, b):
                    return f"gives wrong numbers {'backward' if backward else 'forward'}"
        return "works"
    except (RecurError, RuntimeError, MemoryError) as error:
        return _describe_failure(error)


def exchange_unsupported_reason(here: DeviceInfo, exchange: int) -> str | None:
    """Return the reason why a GPU cannot use an exchange, or None."""
    if exchange == CLUSTER and not here.clusters:
        return f"needs compute capability 9.0, and this is {here.major}.{here.minor}"
    return None


def _near(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = a.double(), b.double()
    return bool((a - b).norm() <= TOLERANCE * b.norm())


def _describe_failure(error: BaseException) -> str:
    return f"does not work: {(str(error).splitlines() or [type(error).__name__])[0]}"
