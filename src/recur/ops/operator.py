"""The operator `recur::scan` on plain tensors, with its derivative `recur::scan_backward`.

Autograd, torch.compile and torch.export see an ordinary operator. The kernels of a device (`recur.ops.cpu.plans`,
`recur.ops.cuda.dispatch`) are imported when data on that device is first scanned. A cell is passed as the text of its
programs, so a graph that contains the operator contains the cell. Without a state, sequences start from zero. `sizes`
is the number of sequences that take each step; batch-major, where all sequences take all steps, it is (B, T), so that
a graph can keep both symbolic.

A module of kernels has five functions: `forward` and `backward` run a pass, `whole` fills uninitialised parts of the
results of a forward pass, `shapes` and `gradient_shapes` return empty tensors with the shapes of the results.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch
from torch import Tensor

from recur.compat import below_autograd, is_eager, is_wrapped, keeps_graph, plain_apply
from recur.compiler.assembly import load_assembly
from recur.compiler.programs import Signature, make_signature
from recur.errors import BackendError

Tensors = list[Tensor]


LIBRARY = torch.library.Library("recur", "DEF")
LIBRARY.define(
    "scan(Tensor data, Tensor[] weights, Tensor[] extras, Tensor[] state, Tensor? mask, Tensor? xi, SymInt[] sizes, "
    "bool batch_major, float clip, str cell, str matmul_dtype, bool train) -> Tensor[]"
)
LIBRARY.define(
    "scan_backward(Tensor?[] gradients, Tensor data, Tensor[] weights, Tensor[] extras, Tensor[] state, Tensor? mask, "
    "Tensor? xi, SymInt[] sizes, bool batch_major, float clip, str cell, str matmul_dtype, Tensor[] outputs, "
    "Tensor[] saved, bool for_data, bool for_state, bool traced) -> Tensor[]"
)


RecordTrace: TypeAlias = Callable[[Tensors], None] | None
"""Receives what a trace records of a backward pass: see `recur.ops.cpu.plans.backward`."""
Recompute: TypeAlias = Callable[..., list[Tensor | None]]
"""Computes the gradients by operations of PyTorch, for a backward pass that is itself differentiated."""

KERNEL_MODULES = {"cpu": "recur.ops.cpu.plans", "cuda": "recur.ops.cuda.dispatch"}
"""The modules of kernels by device type."""
KERNELS: dict[str, ModuleType] = {}
"""The modules that were used so far."""


def kernels_for(data: Tensor) -> Any:
    """Return the kernels of a tensor's device. A tensor without numbers (meta) has the shapes of the CPU."""
    device = "cuda" if data.is_cuda else "cpu"
    found = KERNELS.get(device)
    if found is None:
        found = KERNELS[device] = importlib.import_module(KERNEL_MODULES[device])
    return found


class OperatorArguments(NamedTuple):
    """The arguments of `recur::scan`, in the order of its schema."""

    data: Tensor
    weights: Tensors
    extras: Tensors
    state: Tensors
    mask: Tensor | None
    xi: Tensor | None
    sizes: Sequence[int]
    batch_major: bool
    clip: float
    cell: str
    matmul_dtype: str = ""
    """The dtype of matrix products, if not that of the data: bfloat16 or int8."""

    def flat(self) -> tuple[Signature, Tensors]:
        """Return the signature of the call, and its tensors."""
        data, weights, extras, state, mask, xi, sizes, batch_major, clip, cell, matmul_dtype = self
        return make_signature(
            data, weights, extras, state, mask, xi, None if batch_major else sizes, clip, cell, matmul_dtype
        )

    @staticmethod
    def of(signature: Signature, given: Sequence[Tensor]) -> OperatorArguments:
        """Return the arguments with this signature and these tensors."""
        s, w, e = signature, 1 + signature.weights, 1 + signature.weights + signature.extras
        rest = iter(given[s.differentiable :])
        return OperatorArguments(
            given[0], list(given[1:w]), list(given[w:e]), list(given[e : s.differentiable]),
            next(rest) if s.masked else None, next(rest) if s.weighted else None,
            s.sizes or s.shape[:2], len(s.shape) == 3, s.clip, s.cell, s.matmul_dtype,
        )  # fmt: skip


class OperatorCall(NamedTuple):
    """Arguments of `ScanFunction` that are not tensors."""

    signature: Signature
    record: RecordTrace = None
    recompute: Recompute | None = None
    private: bool = False
    """Whether saved values are not among the results, so that the last backward pass may overwrite them."""
    eager: bool = False
    """Whether the forward pass calls the kernels without PyTorch's dispatcher."""


class ScanFunction(torch.autograd.Function):
    """The operator with its derivative, as autograd sees it."""

    @staticmethod
    def forward(ctx: Any, call: OperatorCall, *given: Tensor) -> tuple[Tensor, ...]:
        signature = call.signature
        results = (
            kernels_for(given[0]).forward(signature, given, True)
            if call.eager
            else _below_autograd(*OperatorArguments.of(signature, given), True)
        )
        outputs, visible = counts(signature)
        ctx.call = call
        ctx.save_for_backward(*given, *results[:outputs], *results[visible:])
        ctx.set_materialize_grads(False)
        if call.private:
            return tuple(results[:visible])
        ctx.mark_non_differentiable(*results[visible:])
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        call: OperatorCall = ctx.call
        signature, record, recompute, private, _ = call
        kept, wanted, count = ctx.saved_tensors, ctx.needs_input_grad[1:], signature.differentiable
        is_recorded = torch.is_grad_enabled()
        if recompute is not None and is_recorded:
            data, weights, extras, state, *_ = OperatorArguments.of(signature, kept)
            found = recompute(gradients, data, weights, extras, state, wanted[:count])
            return None, *found, *[None] * (signature.given - count)
        asked = wanted[0], any(wanted[count - signature.states : count]), record is not None
        if is_eager(kept[0]) and not is_recorded:
            last = not keeps_graph()
            found, recorded = kernels_for(kept[0]).backward(signature, kept, gradients, *asked, private and last)
        else:
            outputs, visible = counts(signature)
            given, results = OperatorArguments.of(signature, kept), kept[signature.given :]
            every = torch.ops.recur.scan_backward(
                gradients[:visible], *given, results[:outputs], results[outputs:], *asked
            )
            found, recorded = [d if need else None for d, need in zip(every, wanted, strict=False)], every[count:]
            found = found[:count] + [None] * (signature.given - count)
        if record is not None:
            record(recorded)
        return None, *found


# The names that torch.profiler shows: those of the operators.
ScanFunction.__name__ = "recur::scan"
ScanFunction._backward_cls.__name__ = "recur::scan_backward"  # made by its metaclass


def counts(signature: Signature) -> tuple[int, int]:
    """Return how many results are outputs, and how many are outputs or final states."""
    a = load_assembly(signature.cell)
    return len(a.outputs), len(a.outputs) + a.states


# Implementations that PyTorch's dispatcher calls ----------------------------------------------------------------------


def _scan(*arguments: Any) -> Tensors:
    *scan, train = arguments
    signature, given = OperatorArguments(*scan).flat()
    runs = kernels_for(given[0])
    results: Tensors = runs.forward(signature, given, train)
    if train:
        results = runs.whole(signature, results)
    return results


def _scan_shapes(*arguments: Any) -> Tensors:
    *scan, train = arguments
    signature, (data, *_) = OperatorArguments(*scan).flat()
    found: Tensors = kernels_for(data).shapes(signature, data, train)
    return found


def _scan_backward(gradients: Sequence[Tensor | None], *arguments: Any) -> Tensors:
    *scan, outputs, saved, for_data, for_state, traced = arguments
    signature, given = OperatorArguments(*scan).flat()
    kept = [*given, *outputs, *saved]
    found, recorded = kernels_for(given[0]).backward(signature, kept, gradients, for_data, for_state, traced)
    return [given[0].new_empty(0) if d is None else d for d in found[: signature.differentiable]] + list(recorded)


def _scan_backward_shapes(gradients: Sequence[Tensor | None], *arguments: Any) -> Tensors:
    *scan, _, _, for_data, for_state, traced = arguments
    signature, given = OperatorArguments(*scan).flat()
    asked = [for_data, *[True] * (signature.weights + signature.extras), *[for_state] * signature.states]
    shapes: Tensors = kernels_for(given[0]).gradient_shapes(signature, given, traced)
    found = [part if wanted else part.new_empty(0) for part, wanted in zip(shapes, asked, strict=False)]
    return found + shapes[signature.differentiable :]


def _autograd(*arguments: Any) -> Tensors:
    *scan, train = arguments
    signature, given = OperatorArguments(*scan).flat()
    if train and is_recorded(given):
        return list(ScanFunction.apply(OperatorCall(signature), *given))
    return _below_autograd(*arguments)


def is_recorded(given: Tensors) -> bool:
    """Return True if autograd has to record a call with these tensors."""
    if torch.is_grad_enabled():
        for tensor in reversed(given):  # faster than any() with a generator
            if tensor.requires_grad:
                return True
    return False


def _below_autograd(*arguments: Any) -> Tensors:
    with below_autograd():
        found: Tensors = torch.ops.recur.scan(*arguments)
    return found


class _OnceDifferentiable(torch.autograd.Function):
    """Identity on gradients whose own derivative raises a clear error."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> NoReturn:
        raise BackendError("a compiled or exported scan has no second derivatives; take them of the network itself")


def _backward_autograd(gradients: Sequence[Tensor | None], *rest: Any) -> Tensors:
    with below_autograd():
        found: Tensors = torch.ops.recur.scan_backward(gradients, *rest)
    data, weights, extras, state = rest[:4]
    inputs = [t for t in (*gradients, data, *weights, *extras, *state) if t is not None and t.requires_grad]
    if torch.is_grad_enabled() and inputs:
        found = list(_OnceDifferentiable.apply(len(found), *found, *inputs))
    return found


# Entry points of recur.ops --------------------------------------------------------------------------------------


def scan_op(record: RecordTrace, recompute: Recompute, signature: Signature, given: Tensors) -> Sequence[Tensor]:
    """Call the operator, without PyTorch's dispatcher if no compiler or mode has to see it."""
    eager = is_eager(given[0])
    if record is None and not eager:
        found: Tensors = torch.ops.recur.scan(*OperatorArguments.of(signature, given), is_recorded(given))
        return found
    return run(record, recompute, signature, given, eager)


def run(
    record: RecordTrace, recompute: Recompute, signature: Signature, given: Tensors, eager: bool
) -> Sequence[Tensor]:
    """Return outputs and final states; recorded by `ScanFunction` if a tensor requires a gradient."""
    if is_recorded(given):
        # Function.apply prepares for torch.func transforms; needed only for wrappers that outlived their transform.
        apply = ScanFunction.apply if any(map(is_wrapped, given)) else _APPLY
        results: tuple[Tensor, ...] = apply(OperatorCall(signature, record, recompute, True, eager), *given)
        return results
    found: Tensors = kernels_for(given[0]).forward(signature, given, False)
    return found


_APPLY = plain_apply(ScanFunction)


for key in ("CPU", "CUDA"):
    LIBRARY.impl("scan", _scan, key)
    LIBRARY.impl("scan_backward", _scan_backward, key)
LIBRARY.impl("scan", _autograd, "Autograd")
LIBRARY.impl("scan_backward", _backward_autograd, "Autograd")
torch.library.register_fake("recur::scan", _scan_shapes, lib=LIBRARY)
torch.library.register_fake("recur::scan_backward", _scan_backward_shapes, lib=LIBRARY)
