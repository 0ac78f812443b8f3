"""Registry of the backends of scan, the choice among them, and the backends of compiled programs.

`native` (C++ on the CPU) and `cuda` (generated kernels) run the compiled program of a pointwise cell. Both call the
operator `recur::scan`. Packages `recur.ops.cpu` and `recur.ops.cuda` are imported when a scan first needs them, so a
scan on the CPU imports nothing of `recur.ops.cuda`.

A backend is a module or an object with three functions; all backends give the same numbers and the same gradients:

    computes_in(dtype)         the dtype of the arithmetic for results of a dtype
    unsupported_reason(call)   why the backend cannot run the call; None if it can
    run(call)                  the outputs (N, H), several concatenated, and the final states (S, H), in packed order;
                               without packing, the outputs may also be (B, T, H)
"""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType

import torch
from torch import Tensor

from recur.cells.cell import State
from recur.cells.matrix import MatrixCell
from recur.compat import constant_when_compiled, in_transform, records_for_others
from recur.compiler import programs
from recur.compiler.programs import Signature, make_signature
from recur.compiler.stage_tracing import staged
from recur.errors import BackendError, RecurLoopWarning, unknown
from recur.ops import chunk, loop, operator, parallel, per_sample, torch_backend
from recur.ops.call import ScanCall
from recur.ops.loop import differentiate_by_loop

SLOWER = 1.05
"""If the cuda backend takes more than this many times the time of cuDNN, `auto` chooses cuDNN."""


class NativeBackend:
    """Any pointwise cell on the CPU, by the C++ core."""

    name = "native"

    def computes_in(self, dtype: torch.dtype) -> torch.dtype:
        """Return float32 for 16-bit results: sums and states need it. Matrix products may still be in bfloat16."""
        return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype

    def unsupported_reason(self, call: ScanCall) -> str | None:
        if reason := _mask_reason(call):
            return reason
        if staged(call.cell):
            missing: str | None = stages().unsupported_reason(call)
            return missing
        if call.matmul_dtype and self.computes_in(call.dtype) != torch.float32:
            return f"it converts numbers of float32, and x is {str(call.dtype).removeprefix('torch.')}"
        if call.matmul_dtype == "int8" and torch.is_grad_enabled():
            given = (call.x, *call.weights.values(), *(call.start or ()))
            if any(part.requires_grad for part in given):
                return "no gradient goes through 8-bit weights; call it under torch.no_grad()"
        from recur.ops.cpu.library import unsupported_reason

        dtype, biased = self.computes_in(call.dtype), "bias_ih" in call.weights
        if in_transform() and (reason := _transform_reason(call)):
            return reason
        return unsupported_reason(call.cell, call.x, dtype, biased, in_transform())

    def run(self, call: ScanCall) -> tuple[Tensor, State]:
        if staged(call.cell):
            found: tuple[Tensor, State] = stages().run(call)
            return found
        return run(call, call.matmul_dtype or ("bfloat16" if call.dtype == torch.bfloat16 else ""))


class CudaBackend:
    """Any pointwise cell on a GPU, by kernels that are generated from its program and compiled when first needed."""

    name = "cuda"

    def computes_in(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype itself: 16-bit numbers are stored and multiplied as such, sums and states are in float32."""
        return dtype

    def unsupported_reason(self, call: ScanCall) -> str | None:
        if call.x.device.type != "cuda":
            return f"it runs on a GPU, and x is on {call.x.device}"
        from recur.ops.cuda.dispatch import DTYPES

        if call.x.dtype not in DTYPES:
            known = "float32, float64, bfloat16 and float16"
            return f"it knows {known}, and x is {str(call.x.dtype).removeprefix('torch.')}"
        reason = _mask_reason(call) or _missing_cuda(call.x.device.index)
        if reason is None and in_transform():
            reason = _transform_reason(call)
        return reason or programs.not_compiled(call.cell, call.x, "bias_ih" in call.weights, in_transform())

    def slower_reason(self, call: ScanCall) -> str | None:
        """Return why `auto` should choose cuDNN, where cuDNN can run the call; None if it should not."""
        compiling = torch.compiler.is_compiling()
        if call.packing is not None or compiling or torch_backend.unsupported_reason(call) is not None:
            return None
        from recur.ops.cuda.dispatch import time_relative_to_cudnn

        text, given, extras = programs.operands(call.cell, call.weights)
        signature, tensors = make_signature(call.x, given, extras, call.start or (), None, None, None, 0.0, text, "")
        ratio = time_relative_to_cudnn(
            signature._replace(dtype=call.dtype), call.x.device.index, operator.is_recorded(tensors)
        )
        if ratio is None or ratio <= SLOWER:
            return None
        return f"cuDNN is faster here: this takes {ratio:.2f} times as long, by the table of this GPU"

    def run(self, call: ScanCall) -> tuple[Tensor, State]:
        return run(call, describe=functools.partial(describe_kernels, call.x.device.index, call.trace.wanted))


def stages() -> ModuleType:
    """Return the module that runs steps with several stages, imported when first needed."""
    return importlib.import_module("recur.ops.staged")


NATIVE, CUDA = NativeBackend(), CudaBackend()


def describe_kernels(index: int, traced: bool, signature: Signature, recorded: bool, directions: int = 1) -> str:
    """Describe the kernels that run a scan on a GPU, and those of its backward pass if autograd records it."""
    from recur.ops.cuda import dispatch

    with dispatch.on_device(torch.device("cuda", index)):
        both = "both directions at once; " if directions == 2 else ""
        return both + dispatch.describe(signature, index, recorded, traced, directions)


def _mask_reason(call: ScanCall) -> str | None:
    if call.mask is not None and call.mask.requires_grad and torch.is_grad_enabled():
        return "it gives no gradient to the mask, which requires one"
    return None


def _transform_reason(call: ScanCall) -> str | None:
    """Return why the active transforms need the loop; None for gradients per sample."""
    given = [call.x, *(call.start or ()), *([] if call.mask is None else [call.mask])]
    weights = list(call.weights.values())
    return per_sample.unsupported_reason(given, weights, call.trace.wanted)


@constant_when_compiled
def _missing_cuda(index: int) -> str | None:
    from recur.ops.cuda import dispatch

    return dispatch.missing_reason(index)


def run(
    call: ScanCall, matmul_dtype: str = "", describe: Callable[[Signature, bool], str] | None = None
) -> tuple[Tensor, State]:
    """Run a call by the operator.

    matmul_dtype  the dtype of matrix products, if not that of the data
    describe      returns a description of the kernels for the trace
    """
    text, given, extras = programs.operands(call.cell, call.weights)
    data, sizes, xi = call.x, None, call.xi
    if call.packing is not None:
        data, sizes = call.data, call.sizes
    elif xi is not None:
        B, T, _ = data.shape
        xi = xi.view(T, B).t().contiguous()
    record = functools.partial(_record, call) if call.trace.wanted else None
    recompute = functools.partial(differentiate_operator, call)
    options = (call.mask, xi, sizes, call.bptt.clip or 0.0, text, matmul_dtype)
    signature, tensors = make_signature(data, given, extras, call.start or (), *options)
    if describe is not None and not torch.compiler.is_compiling():
        call.trace.describe = functools.partial(describe, signature, operator.is_recorded(tensors))
    if in_transform():
        results = per_sample.scan(signature, tensors)
    else:
        results = operator.scan_op(record, recompute, signature, tensors)
    count = len(call.cell.outputs) or 1
    outputs = results[0] if count == 1 else torch.cat(list(results[:count]), dim=-1)
    if record is not None:
        factors = {"weight_ih": call.data}
        if call.cell.recurrent_gates:
            factors["weight_hh"] = _multiplied(call, results[call.cell.output_states.index(0)])
        call.trace.record_factors(factors)
    return outputs, tuple(results[count : count + len(call.cell.states)])


def _record(call: ScanCall, found: list[Tensor]) -> None:
    """Hand the gradients that a backward pass recorded to the trace, in packed order."""
    names, packed = call.cell.states, [_packed(call, part) for part in found]
    slopes = dict(zip(("weight_ih", "weight_hh"), packed[len(names) :], strict=True))
    if not call.cell.recurrent_gates:
        del slopes["weight_hh"]
    call.trace.record_pass(dict(zip(names, packed, strict=False)), slopes)


def _packed(call: ScanCall, rows: Tensor) -> Tensor:
    """Reorder batch-major rows (B · T, …) step by step; rows of a packed call are in that order already."""
    if call.packing is not None:
        return rows
    return rows.reshape(call.sizes[0], len(call.sizes), -1).transpose(0, 1).flatten(0, 1)


def _multiplied(call: ScanCall, outputs: Tensor) -> Tensor:
    """Return what W multiplies at every step: the first state of the previous step."""
    states = _packed(call, outputs.detach()).split(call.sizes)
    before = [call.state[0], *(part[:n] for part, n in zip(states, call.sizes[1:], strict=False))]
    if call.mask is not None:
        before = [part * call.mask[: len(part)] for part in before]
    return torch.cat(before)


def differentiate_operator(
    call: ScanCall,
    arriving: Sequence[Tensor | None],
    data: Tensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Tensor],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Compute the gradients of the operator's arguments by operations of PyTorch, which can be differentiated again.

    arriving  the gradients of the outputs and of the final states
    wanted    which gradients are needed: of data, weights, extras and states
    """
    cell, names = programs.prepared_cell(call.cell, call.weights)
    named = dict(zip(names, (*weights, *extras), strict=True))
    count = len(call.cell.output_states)
    of_outputs = _concatenate(arriving[:count])
    arriving = [of_outputs if of_outputs is None else _packed(call, of_outputs), *arriving[count:]]
    found = differentiate_by_loop(call, cell, named, _packed(call, data), tuple(state) or None, arriving, wanted)
    of_data = found[0]
    if call.packing is None and of_data is not None:  # back to batch-major order
        found[0] = of_data.view(len(call.sizes), call.sizes[0], -1).transpose(0, 1)
    return found


def _concatenate(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Concatenate the gradients of several outputs, with zeros for missing ones."""
    like = next((part for part in parts if part is not None), None)
    if like is None or len(parts) == 1:
        return like
    return torch.cat([torch.zeros_like(like) if part is None else part for part in parts], dim=-1)


Backend = NativeBackend | CudaBackend | ModuleType
"""One implementation of scan: see the module."""

BACKENDS: dict[str, Backend] = {
    "native": NATIVE,
    "cuda": CUDA,
    "parallel": parallel,
    "torch": torch_backend,
    "chunk": chunk,
    "loop": loop,
}
"""The backends by name, in the order in which `auto` tries them."""


OPERATOR_BACKENDS = ("native", "cuda")
RECORDED = "torch.onnx records operators of PyTorch, for programs that do not have recur"


def check_backend(backend: object) -> None:
    """Raise if `backend` is neither `auto` nor the name of a backend."""
    if not isinstance(backend, str) or backend not in ("auto", *BACKENDS):
        raise BackendError(unknown("backend", backend, ["auto", *BACKENDS]))


_WARNED: set[tuple[str, str]] = set()
"""Cells and reasons that were warned of."""


@constant_when_compiled
def _warn_of_loop(name: str, reason: str) -> None:
    """Warn once that a cell runs on the loop, with the reason."""
    if (name, reason) not in _WARNED:
        _WARNED.add((name, reason))
        frame, level = sys._getframe(1), 2
        while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in ("recur", "torch"):
            frame, level = frame.f_back, level + 1
        warnings.warn(
            f"{name} runs on the loop, one step at a time in PyTorch, which is slow: {reason}. A step of pointwise "
            "operations on its arguments is compiled; backend='loop' accepts the loop without this warning",
            RecurLoopWarning,
            stacklevel=level,
        )


def choose_backend(call: ScanCall, backend: str) -> Backend:
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
            reason = RECORDED if name in OPERATOR_BACKENDS and records_for_others() else module.unsupported_reason(call)
            if reason is None and (module is CUDA or module is chunk):
                reason = module.slower_reason(call)
            if reason is None:
                call.trace.backend = name
                if module is loop and not in_transform():
                    slow = (CUDA if call.x.is_cuda else NATIVE).unsupported_reason(call)
                    if isinstance(call.cell, MatrixCell):  # others than a short or a traced call run in chunks
                        slow = chunk.missing_form(call.cell)
                    if slow is not None:
                        _warn_of_loop(type(call.cell).__name__, slow)
                return module
            call.trace.passed_over[name] = reason
    check_backend(backend)
    reason = BACKENDS[backend].unsupported_reason(call)
    if reason is not None:
        raise BackendError(f"backend {backend!r} cannot run this: {reason}; take backend='auto' or 'loop'")
    call.trace.backend = backend
    return BACKENDS[backend]
