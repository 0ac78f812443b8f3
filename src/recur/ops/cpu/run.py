"""Kernels of the CPU: allocate the results of a scan and call the C++ core. See `recur.ops.operator.Kernels`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from recur.compiler.signature import Signature
from recur.ops.cpu.plans import ScanSizes, backward_pass, current_config, forward_pass

Tensors = list[Tensor]


def forward(signature: Signature, given: Sequence[Tensor], train: bool) -> Tensors:
    """Return outputs, final states and, for training, the tensor of saved values."""
    prepared = forward_pass(signature, train, current_config())
    empty = given[0].new_empty
    results = [empty(*shape) for shape in prepared.results]
    prepared.plan.run([*map(_contiguous, given), *results])
    return results


_contiguous = Tensor.contiguous


def whole(signature: Signature, results: Tensors) -> Tensors:
    """Zero the padding between saved values: an operator must not return uninitialised memory."""
    for piece in forward_pass(signature, True, current_config()).unwritten:
        results[-1].as_strided(*piece).zero_()
    return results


def shapes(signature: Signature, data: Tensor, train: bool) -> Tensors:
    """Return empty tensors with the shapes of the results of a forward pass."""
    return [data.new_empty(shape) for shape in ScanSizes(signature).results(train)]


def gradient_shapes(signature: Signature, given: Sequence[Tensor], traced: bool) -> Tensors:
    """Return empty tensors with the shapes of all gradients and, if traced, of what a trace records."""
    found = [part.new_empty(part.shape) for part in given[: signature.differentiable]]
    return found + [given[0].new_empty(shape) for shape in (ScanSizes(signature).recorded if traced else [])]


def backward(
    signature: Signature,
    kept: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    for_data: bool,
    for_state: bool,
    traced: bool,
    overwrite_saved: bool = False,
) -> tuple[list[Tensor | None], Tensors]:
    """Return the gradients (None where not requested) and, if traced, the full gradients of all states, U x and W h.

    kept             the given tensors, the outputs, and the saved values
    gradients        the gradients of outputs and final states
    overwrite_saved  reuse the memory of saved values: no further backward pass will run over this graph
    """
    arriving = tuple([gradient is not None for gradient in gradients])
    prepared = backward_pass(signature, arriving, for_data, for_state, traced, overwrite_saved, current_config())
    empty = kept[0].new_empty
    tensors = [*map(_contiguous, kept), *[g.contiguous() for g in gradients if g is not None]]
    found = [like(tensor) for like, tensor in zip(prepared.likes, tensors[prepared.wanted], strict=True)]
    recorded = [empty(*shape) for shape in prepared.recorded]
    tensors += [*found, *recorded]
    prepared.plan.run(tensors)
    for k, columns, tensor, piece in prepared.copied:
        recorded[k][:, columns].copy_(tensors[tensor].as_strided(*piece))
    every: list[Tensor | None] = [None] * signature.given
    every[prepared.wanted] = found
    return every, recorded[: prepared.records]
