"""Registry of the backends of scan, and the choice among them."""

from __future__ import annotations

from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from recur.cells.cell import State
from recur.errors import BackendError, unknown
from recur.ops import loop, parallel, torch_backend
from recur.ops.call import ScanCall
from recur.ops.compiled import CUDA, NATIVE


class Backend(Protocol):
    """One implementation of scan. All give the same numbers and the same gradients."""

    name: str

    def computes_in(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of the arithmetic for results of `dtype`."""

    def unsupported_reason(self, call: ScanCall) -> str | None:
        """Return why this backend cannot run the call; None if it can."""

    def run(self, call: ScanCall) -> tuple[Tensor, State]:
        """Return the outputs (N, H), several concatenated, and the final states (S, H), in packed order.

        For a call without packing, the outputs may also be (B, T, H).
        """


BACKENDS: dict[str, Backend | ModuleType] = {
    "native": NATIVE,
    "cuda": CUDA,
    "parallel": parallel,
    "torch": torch_backend,
    "loop": loop,
}
"""The backends by name, in the order in which `auto` tries them."""


def check_backend(backend: object) -> None:
    """Raise if `backend` is neither `auto` nor the name of a backend."""
    if not isinstance(backend, str) or backend not in ("auto", *BACKENDS):
        raise BackendError(unknown("backend", backend, ["auto", *BACKENDS]))


def choose_backend(call: ScanCall, backend: str) -> Backend | ModuleType:
    """Return the backend that runs a call, and record the choice in its trace.

    A backend requested by name runs or raises; `auto` takes the first that can run the call.
    """
    if call.matmul_dtype:
        reason = NATIVE.unsupported_reason(call) if backend in ("auto", "native") else f"{backend!r} was asked for"
        if reason is not None:
            raise BackendError(
                f"matmul_dtype={call.matmul_dtype!r} needs backend 'native', which cannot run this: {reason}"
            )
        backend = "native"
    if backend == "auto":
        for name, module in BACKENDS.items():
            reason = module.unsupported_reason(call)
            if reason is None and module is CUDA:
                reason = CUDA.slower_reason(call)
            if reason is None:
                call.trace.backend = name
                return module
            call.trace.passed_over[name] = reason
    check_backend(backend)
    reason = BACKENDS[backend].unsupported_reason(call)
    if reason is not None:
        raise BackendError(f"backend {backend!r} cannot run this: {reason}; take backend='auto' or 'loop'")
    call.trace.backend = backend
    return BACKENDS[backend]
