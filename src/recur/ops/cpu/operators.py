"""The scan as one PyTorch operator on plain tensors, `recur::scan`, with its derivative `recur::scan_backward`.

Autograd, torch.compile and torch.export see an operator like any other; `IMPLEMENTATIONS` has what runs it, by the kind
of device that the data is on: run.py for the CPU. A cell is passed as the text of its assembled programs, so that a
graph which holds the operator holds the cell. Where no state is given, sequences start from zero. `sizes` is how many
sequences take each step; batch-major, where all take all of them, it is B and T, so that a graph may leave both open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch
from torch import Tensor

from recur.compiler.signature import Signature, make_signature
from recur.errors import BackendError
from recur.ops.cpu import run as on_cpu
from recur.ops.cpu.implementation import Implementation
from recur.ops.cpu.programs import load
from recur.ops.cpu.run import Tensors

LIBRARY = torch.library.Library("recur", "DEF")
LIBRARY.define(
    "scan(Tensor data, Tensor[] weights, Tensor[] extras, Tensor[] state, Tensor? mask, Tensor? xi, SymInt[] sizes, "
    "bool batch_major, float clip, str cell, str products, bool train) -> Tensor[]"
)
LIBRARY.define(
    "scan_backward(Tensor?[] gradients, Tensor data, Tensor[] weights, Tensor[] extras, Tensor[] state, Tensor? mask, "
    "Tensor? xi, SymInt[] sizes, bool batch_major, float clip, str cell, str products, Tensor[] outputs, "
    "Tensor[] saved, bool for_data, bool for_state, bool traced) -> Tensor[]"
)


Record: TypeAlias = Callable[[Tensors], None] | None
"""What receives, after a backward pass, what a trace records of it: see run.backward."""
Again: TypeAlias = Callable[..., list[Tensor | None]]
"""What computes the gradients by operations of PyTorch instead, in a backward pass that is itself recorded."""


IMPLEMENTATIONS: dict[str, Implementation | ModuleType] = {"cpu": on_cpu}


def implementation(data: Tensor) -> Any:
    """That of its device; of one that holds no numbers, such as meta, whose shapes are those of the CPU."""
    return IMPLEMENTATIONS.get("cuda" if data.is_cuda else "cpu", on_cpu)


def is_eager(x: Tensor) -> bool:
    """Whether no tracing, compiling, tensor subclass or dispatch mode has to see the operator."""
    plain = type(x) is Tensor or type(x) is torch.nn.Parameter
    return plain and not torch.compiler.is_compiling() and not torch._C._len_torch_dispatch_stack()


class Arguments(NamedTuple):
    """What a scan is given, in the operator's order."""

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
    products: str = ""
    """What products read, if not the numbers as they are: bfloat16 or int8, of float32."""

    def flat(self) -> tuple[Signature, Tensors]:
        """The same as a signature and its tensors."""
        data, weights, extras, state, mask, xi, sizes, batch_major, clip, cell, products = self
        return make_signature(
            data, weights, extras, state, mask, xi, None if batch_major else sizes, clip, cell, products
        )

    @staticmethod
    def of(signature: Signature, given: Sequence[Tensor]) -> Arguments:
        """Those with this signature and these tensors."""
        s, w, e = signature, 1 + signature.weights, 1 + signature.weights + signature.extras
        rest = iter(given[s.differentiable :])
        return Arguments(
            given[0], list(given[1:w]), list(given[w:e]), list(given[e : s.differentiable]),
            next(rest) if s.masked else None, next(rest) if s.weighted else None,
            s.sizes or s.shape[:2], len(s.shape) == 3, s.clip, s.cell, s.products,
        )  # fmt: skip


class Call(NamedTuple):
    """A call of the operator whose tensors autograd must see one by one."""

    signature: Signature
    record: Record = None
    again: Again | None = None
    private: bool = False
    """Whether what is saved is not among the results, so that a last backward pass may overwrite it."""
    eager: bool = False
    """Whether the forward pass does without PyTorch's dispatcher."""


class Differentiable(torch.autograd.Function):
    """The operator with its derivative."""

    @staticmethod
    def forward(ctx: Any, call: Call, *given: Tensor) -> tuple[Tensor, ...]:
        of = call.signature
        results = (
            implementation(given[0]).forward(of, given, True)
            if call.eager
            else _below_autograd(*Arguments.of(of, given), True)
        )
        outputs, visible = counts(of)
        ctx.call = call
        ctx.save_for_backward(*given, *results[:outputs], *results[visible:])
        ctx.set_materialize_grads(False)
        if call.private:
            return tuple(results[:visible])
        ctx.mark_non_differentiable(*results[visible:])
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        call: Call = ctx.call
        of, record, again, private, _ = call
        kept, wanted, count = ctx.saved_tensors, ctx.needs_input_grad[1:], of.differentiable
        is_recorded = torch.is_grad_enabled()
        if again is not None and is_recorded:
            data, weights, extras, state, *_ = Arguments.of(of, kept)
            found = again(gradients, data, weights, extras, state, wanted[:count])
            return None, *found, *[None] * (of.given - count)
        asked = wanted[0], any(wanted[count - of.states : count]), record is not None
        if is_eager(kept[0]) and not is_recorded:
            last = not torch._C._autograd._get_current_graph_task_keep_graph()
            found, recorded = implementation(kept[0]).backward(of, kept, gradients, *asked, private and last)
        else:
            outputs, visible = counts(of)
            given, results = Arguments.of(of, kept), kept[of.given :]
            every = torch.ops.recur.scan_backward(
                gradients[:visible], *given, results[:outputs], results[outputs:], *asked
            )
            found, recorded = [d if need else None for d, need in zip(every, wanted, strict=False)], every[count:]
            found = found[:count] + [None] * (of.given - count)
        if record is not None:
            record(recorded)
        return None, *found


def counts(of: Signature) -> tuple[int, int]:
    """How many of the results are outputs, and how many are outputs and final states."""
    a = load(of.cell).assembly
    return len(a.outputs), len(a.outputs) + a.states


# What PyTorch's dispatcher calls ------------------------------------------------------------------------


def _scan(*arguments: Any) -> Tensors:
    *scan, train = arguments
    of, given = Arguments(*scan).flat()
    runs = implementation(given[0])
    results: Tensors = runs.forward(of, given, train)
    if train:
        results = runs.whole(of, results)
    return results


def _scan_shapes(*arguments: Any) -> Tensors:
    *scan, train = arguments
    of, (data, *_) = Arguments(*scan).flat()
    found: Tensors = implementation(data).shapes(of, data, train)
    return found


def _scan_backward(gradients: Sequence[Tensor | None], *arguments: Any) -> Tensors:
    *scan, outputs, saved, for_data, for_state, traced = arguments
    of, given = Arguments(*scan).flat()
    kept = [*given, *outputs, *saved]
    found, recorded = implementation(given[0]).backward(of, kept, gradients, for_data, for_state, traced)
    return [given[0].new_empty(0) if d is None else d for d in found[: of.differentiable]] + list(recorded)


def _scan_backward_shapes(gradients: Sequence[Tensor | None], *arguments: Any) -> Tensors:
    *scan, _, _, for_data, for_state, traced = arguments
    of, given = Arguments(*scan).flat()
    asked = [for_data, *[True] * (of.weights + of.extras), *[for_state] * of.states]
    shapes: Tensors = implementation(given[0]).gradient_shapes(of, given, traced)
    found = [part if wanted else part.new_empty(0) for part, wanted in zip(shapes, asked, strict=False)]
    return found + shapes[of.differentiable :]


def _autograd(*arguments: Any) -> Tensors:
    *scan, train = arguments
    of, given = Arguments(*scan).flat()
    if train and is_recorded(given):
        return list(Differentiable.apply(Call(of), *given))
    return _below_autograd(*arguments)


def is_recorded(given: Tensors) -> bool:
    """Whether autograd has to see a call."""
    if torch.is_grad_enabled():
        for tensor in reversed(given):  # a generator would take longer than most answers
            if tensor.requires_grad:
                return True
    return False


def _below_autograd(*arguments: Any) -> Tensors:
    with torch._C._AutoDispatchBelowAutograd():
        found: Tensors = torch.ops.recur.scan(*arguments)
    return found


class _Once(torch.autograd.Function):
    """The identity on gradients, whose own derivative is a clear error."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> NoReturn:
        raise BackendError("a compiled or exported scan has no second derivatives; take them of the network itself")


def _backward_autograd(gradients: Sequence[Tensor | None], *rest: Any) -> Tensors:
    with torch._C._AutoDispatchBelowAutograd():
        found: Tensors = torch.ops.recur.scan_backward(gradients, *rest)
    data, weights, extras, state = rest[:4]
    inputs = [t for t in (*gradients, data, *weights, *extras, *state) if t is not None and t.requires_grad]
    if torch.is_grad_enabled() and inputs:
        found = list(_Once.apply(len(found), *found, *inputs))
    return found


# What a scan calls --------------------------------------------------------------------------------------


def scan_op(record: Record, again: Again, of: Signature, given: Tensors) -> Sequence[Tensor]:
    """The operator, without PyTorch's dispatcher where nothing has to see it."""
    eager = is_eager(given[0])
    if record is None and not eager:
        found: Tensors = torch.ops.recur.scan(*Arguments.of(of, given), is_recorded(given))
        return found
    return run(record, again, of, given, eager)


def run(record: Record, again: Again, of: Signature, given: Tensors, eager: bool) -> Sequence[Tensor]:
    """Outputs and final states, by this module's own derivative if autograd has to see the call."""
    if is_recorded(given):
        # Function.apply prepares for transforms of torch.func, of which only wrappers that outlived one come here.
        apply = Differentiable.apply if any(map(_is_wrapped, given)) else _APPLY
        results: tuple[Tensor, ...] = apply(Call(of, record, again, True, eager), *given)
        return results
    found: Tensors = implementation(given[0]).forward(of, given, False)
    return found


_APPLY = super(torch.autograd.Function, Differentiable).apply
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


for key in ("CPU", "CUDA"):
    LIBRARY.impl("scan", _scan, key)
    LIBRARY.impl("scan_backward", _scan_backward, key)
LIBRARY.impl("scan", _autograd, "Autograd")
LIBRARY.impl("scan_backward", _backward_autograd, "Autograd")
torch.library.register_fake("recur::scan", _scan_shapes, lib=LIBRARY)
torch.library.register_fake("recur::scan_backward", _scan_backward_shapes, lib=LIBRARY)
