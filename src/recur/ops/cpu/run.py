"""A scan on plain tensors: memory for its results, and a call of the C++ core to fill it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from recur.compiler.signature import Signature
from recur.ops.cpu.plans import ScanSizes, backward_pass, current_config, forward_pass

Tensors = list[Tensor]


def forward(signature: Signature, given: Sequence[Tensor], train: bool) -> Tensors:
    """Outputs, final states, and what the backward pass needs beside them."""
    prepared = forward_pass(signature, train, current_config())
    empty = given[0].new_empty
    results = [empty(*shape) for shape in prepared.results]
    prepared.plan.run([*map(_contiguous, given), *results])
    return results


_contiguous = Tensor.contiguous


def whole(signature: Signature, results: Tensors) -> Tensors:
    """Write what lies between the things that are saved, too: an operator returns nothing uninitialised."""
    for piece in forward_pass(signature, True, current_config()).unwritten:
        results[-1].as_strided(*piece).zero_()
    return results


def shapes(signature: Signature, data: Tensor, train: bool) -> Tensors:
    """What a forward pass returns, empty."""
    return [data.new_empty(shape) for shape in ScanSizes(signature).results(train)]


def gradient_shapes(signature: Signature, given: Sequence[Tensor], traced: bool) -> Tensors:
    """The gradients of all that may have one, and what a trace records, empty."""
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
    """The gradients, None where they are not asked for; and, if traced, what a trace records: the whole gradient of
    every state, and of U x and W h.

    kept             what the scan was given, its outputs, and what it saved
    gradients        of outputs and final states
    overwrite_saved  reuses memory of what was saved: there will be no further backward pass over this graph
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
