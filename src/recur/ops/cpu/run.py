"""A scan on plain tensors: memory for its results, and a call of the C++ core to fill it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from recur.compiler.signature import Signature
from recur.ops.cpu.memory import Sizes
from recur.ops.cpu.passes import backward_pass, forward_pass
from recur.ops.cpu.plan import how_now

Tensors = list[Tensor]


def forward(of: Signature, given: Sequence[Tensor], train: bool) -> Tensors:
    """Outputs, final states, and what the backward pass needs beside them."""
    prepared = forward_pass(of, train, how_now())
    empty = given[0].new_empty
    results = [empty(*shape) for shape in prepared.results]
    prepared.plan.run([*map(_contiguous, given), *results])
    return results


_contiguous = Tensor.contiguous


def whole(of: Signature, results: Tensors) -> Tensors:
    """Write what lies between the things that are saved, too: an operator returns nothing uninitialised."""
    for piece in forward_pass(of, True, how_now()).unwritten:
        results[-1].as_strided(*piece).zero_()
    return results


def shapes(of: Signature, data: Tensor, train: bool) -> Tensors:
    """What a forward pass returns, empty."""
    return [data.new_empty(shape) for shape in Sizes(of).results(train)]


def gradient_shapes(of: Signature, given: Sequence[Tensor], traced: bool) -> Tensors:
    """The gradients of all that may have one, and what a trace records, empty."""
    found = [part.new_empty(part.shape) for part in given[: of.differentiable]]
    return found + [given[0].new_empty(shape) for shape in (Sizes(of).recorded if traced else [])]


def backward(
    of: Signature,
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
    prepared = backward_pass(of, arriving, for_data, for_state, traced, overwrite_saved, how_now())
    empty = kept[0].new_empty
    tensors = [*map(_contiguous, kept), *[g.contiguous() for g in gradients if g is not None]]
    found = [like(tensor) for like, tensor in zip(prepared.likes, tensors[prepared.wanted], strict=True)]
    recorded = [empty(*shape) for shape in prepared.recorded]
    tensors += [*found, *recorded]
    prepared.plan.run(tensors)
    for k, columns, tensor, piece in prepared.copied:
        recorded[k][:, columns].copy_(tensors[tensor].as_strided(*piece))
    every: list[Tensor | None] = [None] * of.given
    every[prepared.wanted] = found
    return every, recorded[: prepared.records]
