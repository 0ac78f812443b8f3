"""The scan as one PyTorch operator on plain tensors, `recur::scan`, with its derivative `recur::scan_backward`.

Autograd, torch.compile and torch.export see an operator like any other; run.py is its implementation. A cell is
passed as the text of its assembled programs, so that a graph which holds the operator holds the cell. Where no state
is given, sequences start from zero. `sizes` is how many sequences take each step; batch-major, where all take all of
them, it is B and T, so that a graph may leave both open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor

from recur.errors import BackendError
from recur.native.call import load
from recur.native.run import Options, Tensors, backward, backward_shapes, forward, forward_shapes

LIBRARY = torch.library.Library("recur", "DEF")
LIBRARY.define(
    "scan(Tensor data, Tensor[] weights, Tensor[] extras, Tensor[] state, Tensor? mask, Tensor? xi, SymInt[] sizes, "
    "bool batch_major, float clip, str cell, str products, bool train) -> Tensor[]"
)
LIBRARY.define(
    "scan_backward(Tensor?[] gradients, Tensor data, Tensor[] weights, Tensor[] extras, Tensor[] state, Tensor? mask, "
    "Tensor? xi, Tensor[] outputs, Tensor[] saved, SymInt[] sizes, bool batch_major, float clip, str cell, "
    "str products, bool for_data, bool for_state, bool traced) -> Tensor[]"
)


Record: TypeAlias = Callable[[Tensors], None] | None
"""What receives, after a backward pass, what a trace records of it: see run.backward."""
Again: TypeAlias = Callable[..., list[Tensor | None]]
"""What computes the gradients by operations of PyTorch instead, in a backward pass that is itself recorded."""


def is_eager(x: Tensor) -> bool:
    """Whether no tracing, compiling, tensor subclass or dispatch mode has to see the operator."""
    plain = type(x) is Tensor or type(x) is torch.nn.Parameter
    return plain and not torch.compiler.is_compiling() and not torch._C._len_torch_dispatch_stack()


class Differentiable(torch.autograd.Function):
    """The operator with its derivative, for a call whose tensors autograd must see one by one.

    `private`: the saved tensors are not among the results, so a last backward pass may overwrite them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        record: Record,
        again: Again | None,
        private: bool,
        counts: tuple[int, int, int],
        options: Options,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        data, weights, extras, state = _grouped(counts, tensors)
        if is_eager(data):
            results = forward(data, weights, extras, state, *options, True, zero_padding=not private)
        else:
            results = _below_autograd(data, weights, extras, state, *options, True)
        mask, xi, *ctx.options = options
        ctx.record, ctx.again, ctx.private, ctx.counts = record, again, private, counts
        a = load(options.cell).assembly
        ctx.outputs, ctx.results = len(a.outputs), len(a.outputs) + a.states
        saved = results[ctx.results :]
        ctx.save_for_backward(mask, xi, *results[: ctx.outputs], *tensors, *saved)
        ctx.set_materialize_grads(False)
        if private:
            return tuple(results[: ctx.results])
        ctx.mark_non_differentiable(*saved)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        mask, xi, *rest = ctx.saved_tensors
        outputs, rest = rest[: ctx.outputs], rest[ctx.outputs :]
        count = 1 + sum(ctx.counts)
        tensors, saved = rest[:count], rest[count:]
        data, weights, extras, state = _grouped(ctx.counts, tensors)
        wanted = ctx.needs_input_grad[5:]
        if ctx.again is not None and torch.is_grad_enabled():
            return (None,) * 5 + tuple(ctx.again(gradients, data, weights, extras, state, wanted))
        arguments: Any = (
            gradients[: ctx.results], data, weights, extras, state, mask, xi, outputs, saved, *ctx.options,
            wanted[0], any(wanted[count - len(state) :]), ctx.record is not None,
        )  # fmt: skip
        if is_eager(data) and not torch.is_grad_enabled():
            last = not torch._C._autograd._get_current_graph_task_keep_graph()
            found = backward(*arguments, overwrite_saved=ctx.private and last)
        else:
            found = torch.ops.recur.scan_backward(*arguments)
        if ctx.record is not None:
            ctx.record(found[count:])
        return None, None, None, None, None, *(d if need else None for d, need in zip(found, wanted, strict=False))


def _grouped(counts: tuple[int, int, int], tensors: Sequence[Tensor]) -> tuple[Tensor, Tensors, Tensors, Tensors]:
    data, rest = tensors[0], list(tensors[1:])
    w, e, _ = counts
    return data, rest[:w], rest[w : w + e], rest[w + e :]


def _autograd(
    data: Tensor,
    weights: Tensors,
    extras: Tensors,
    state: Tensors,
    mask: Tensor | None,
    xi: Tensor | None,
    sizes: Sequence[int],
    batch_major: bool,
    clip: float,
    cell: str,
    products: str,
    train: bool,
) -> Tensors:
    tensors = (data, *weights, *extras, *state)
    options = Options(mask, xi, sizes, batch_major, clip, cell, products)
    if train and torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        counts = len(weights), len(extras), len(state)
        return list(Differentiable.apply(None, None, False, counts, options, *tensors))
    return _below_autograd(data, weights, extras, state, *options, train)


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


def scan_op(
    record: Record,
    again: Again,
    data: Tensor,
    weights: Tensors,
    extras: Tensors,
    state: Tensors,
    mask: Tensor | None,
    xi: Tensor | None,
    sizes: Sequence[int],
    batch_major: bool,
    clip: float,
    cell: str,
    products: str = "",
) -> Tensors:
    """The operator, without PyTorch's dispatcher where nothing has to see it."""
    tensors = (data, *weights, *extras, *state)
    options = Options(mask, xi, sizes, batch_major, clip, cell, products)
    train = torch.is_grad_enabled() and any(t.requires_grad for t in reversed(tensors))
    if record is None and not is_eager(data):
        found: Tensors = torch.ops.recur.scan(data, weights, extras, state, *options, train)
        return found
    if train:
        counts = len(weights), len(extras), len(state)
        return list(Differentiable.apply(record, again, True, counts, options, *tensors))
    return forward(data, weights, extras, state, *options, False)


LIBRARY.impl("scan", forward, "CPU")
LIBRARY.impl("scan", _autograd, "Autograd")
LIBRARY.impl("scan_backward", backward, "CPU")
LIBRARY.impl("scan_backward", _backward_autograd, "Autograd")
torch.library.register_fake("recur::scan", forward_shapes, lib=LIBRARY)
torch.library.register_fake("recur::scan_backward", backward_shapes, lib=LIBRARY)
