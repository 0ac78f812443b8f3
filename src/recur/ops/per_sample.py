"""Gradients per sample: the operator inside `torch.func.vmap(torch.func.grad(loss))`, with weights all samples share.

The samples become rows of one scan, each row of the call followed by its copies in the other samples. The backward
pass is one too; it records the gradients of U x and W h of every step, and the gradients of the weights are one batched
product of these with x and h. Where a weight has no such product (extra weights, weight_hr, W by heads), every sample
is a call of the kernels of its own. All other transforms run on the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from recur.compat import bottom_of, is_batched, transform_stack
from recur.compiler.assembly import load_assembly
from recur.compiler.programs import IN_TRANSFORM, Signature
from recur.errors import BackendError
from recur.ops.operator import counts, kernels_for

Tensors = list[Tensor]


def unsupported_reason(given: Sequence[Tensor], weights: Sequence[Tensor], traced: bool) -> str | None:
    """Return why only the loop can run a call in the active transforms; None if its gradients are per sample.

    given    all tensors of the call
    weights  those that all samples have to share
    traced   whether a trace records gradients
    """
    reason = IN_TRANSFORM
    if torch.compiler.is_compiling() or transform_stack() != ["Vmap", "Grad"] or traced:
        return reason
    if any(map(is_batched, weights)):
        return f"{reason}: the samples of this vmap have different weights"
    if not any(map(is_batched, given)):
        return reason
    if any(bottom_of(part).requires_grad for part in (*given, *weights)):
        return f"{reason}: gradients per sample are not differentiated again, so detach the weights before vmap"
    return None


@dataclass(frozen=True)
class Call:
    """Arguments that are not tensors. Not a tuple, which torch's pytrees would take apart."""

    signature: Signature
    arriving: tuple[bool, ...] = ()
    """Which results have a gradient in a backward pass."""
    for_data: bool = True
    for_state: bool = True
    """Whether a backward pass computes the gradients of data and of states. Those of weights are always computed."""

    @property
    def computed(self) -> list[bool]:
        """Which of the differentiable tensors get a gradient."""
        s = self.signature
        return [self.for_data, *[True] * (s.weights + s.extras), *[self.for_state] * s.states]

    def folded(self, K: int) -> Signature:
        """Return the signature of K samples as rows of one scan."""
        s = self.signature
        if s.sizes:
            return s._replace(shape=(K * s.shape[0], s.shape[1]), sizes=tuple(K * n for n in s.sizes))
        return s._replace(shape=(K * s.shape[0], *s.shape[1:]))

    def split(self, operands: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
        """Return the kept tensors of a backward pass, and the incoming gradients with None for missing ones."""
        count = len(operands) - sum(self.arriving)
        rest = iter(operands[count:])
        return operands[:count], [next(rest) if there else None for there in self.arriving]


def is_foldable(signature: Signature) -> bool:
    """Return True if all gradients of weights are products of recorded gradients with inputs and outputs."""
    a = load_assembly(signature.cell)
    projected = "weight_hr" in a.weight_names(signature.weights)
    return not (signature.extras or projected or a.heads > 1 or (a.products and 0 not in a.outputs))


def scan(signature: Signature, given: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return outputs and final states of a call that `unsupported_reason` lets through."""
    results: Sequence[Tensor] = PerSampleScan.apply(Call(signature), *given)
    return results[: counts(signature)[1]]


def shared(signature: Signature) -> slice:
    """Return the positions of weights and extras among the given tensors."""
    return slice(1, 1 + signature.weights + signature.extras)


class PerSampleScan(torch.autograd.Function):
    """The operator with its derivative, for samples that share the weights."""

    @staticmethod
    def forward(call: Call, *given: Tensor) -> tuple[Tensor, ...]:
        return tuple(kernels_for(given[0]).forward(call.signature, given, True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.call, *given = inputs
        outputs, visible = counts(ctx.call.signature)
        ctx.mark_non_differentiable(*output[visible:])
        ctx.save_for_backward(*given, *output[:outputs], *output[visible:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        signature = ctx.call.signature
        gradients = gradients[: counts(signature)[1]]
        needed = ctx.needs_input_grad[1:]
        for_state = any(needed[shared(signature).stop : signature.differentiable])
        call = Call(signature, tuple(part is not None for part in gradients), needed[0], for_state)
        arriving = [part for part in gradients if part is not None]
        found = iter(PerSampleBackward.apply(call, *ctx.saved_tensors, *arriving))
        every = [next(found) if there else None for there in call.computed]
        return None, *every, *[None] * (signature.given - len(every))

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], call: Call, *given: Tensor) -> Any:
        s, K, dims = call.signature, info.batch_size, in_dims[1:]
        if not is_foldable(s):
            calls = [PerSampleScan.apply(call, *_sample(given, dims, k)) for k in range(K)]
            stacked = tuple(map(torch.stack, zip(*calls, strict=True)))
            return stacked, (0,) * len(stacked)
        results = kernels_for(given[0]).forward(call.folded(K), _folded(s, given, dims, K), True)
        visible = counts(s)[1]
        found = [part.unflatten(0, (-1, K)) for part in results[:visible]]
        return (*found, *results[visible:]), (*[1] * visible, *[None] * (len(results) - visible))


class PerSampleBackward(torch.autograd.Function):
    """The gradients of data, weights, extras and states, from what the forward pass kept and incoming gradients."""

    @staticmethod
    def forward(call: Call, *operands: Tensor) -> tuple[Tensor, ...]:
        kept, gradients = call.split(operands)
        asked = call.for_data, call.for_state, False
        found, _ = kernels_for(kept[0]).backward(call.signature, kept, gradients, *asked)
        return tuple(part for part, there in zip(found, call.computed, strict=False) if there)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> NoReturn:
        raise BackendError("gradients per sample are not differentiated again by a kernel; take backend='loop'")

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], call: Call, *operands: Tensor) -> Any:
        s, K, dims = call.signature, info.batch_size, in_dims[1:]
        kept, arriving = call.split(operands)
        kept_dims, arriving_dims = call.split(dims)
        apart = all(dim is None for dim in kept_dims)  # a vmap over incoming gradients alone, as of jacrev
        if apart or not is_foldable(s):
            calls = [PerSampleBackward.apply(call, *_sample(operands, dims, k)) for k in range(K)]
            stacked = tuple(map(torch.stack, zip(*calls, strict=True)))
            return stacked, (0,) * len(stacked)
        outputs = counts(s)[0]
        given = _folded(s, kept, kept_dims, K)
        results = [
            _rows(part, dim, K)
            for part, dim in zip(kept[s.given : s.given + outputs], kept_dims[s.given :], strict=False)
        ]
        gradients = [
            part if part is None else _rows(part, dim, K) for part, dim in zip(arriving, arriving_dims, strict=True)
        ]
        every = [*given, *results, *kept[s.given + outputs :]]
        asked = call.for_data, call.for_state, True
        found, recorded = kernels_for(given[0]).backward(call.folded(K), every, gradients, *asked)
        of_data = [found[0].unflatten(0, (-1, K))] if call.for_data else []
        of_state = [part.unflatten(0, (-1, K)) for part in found[shared(s).stop : s.differentiable] if call.for_state]
        weights = _weight_gradients(s, given, results, recorded, K)
        return (*of_data, *weights, *of_state), (*[1] * len(of_data), *[0] * len(weights), *[1] * len(of_state))


def _sample(given: Sequence[Tensor], dims: Sequence[int | None], k: int) -> Tensors:
    return [part if dim is None else part.select(dim, k) for part, dim in zip(given, dims, strict=True)]


def _rows(part: Tensor, dim: int | None, K: int) -> Tensor:
    """Lay the samples of a tensor out as rows: each row of the call, K times."""
    by_sample = part.unsqueeze(1).expand(-1, K, *part.shape[1:]) if dim is None else part.movedim(dim, 1)
    return by_sample.flatten(0, 1)


def _folded(signature: Signature, given: Sequence[Tensor], dims: Sequence[int | None], K: int) -> Tensors:
    """Return the given tensors of K samples as those of one scan; the weights stay as they are."""
    of_weights = range(signature.differentiable)[shared(signature)]
    count = signature.given
    return [
        part if j in of_weights else _rows(part, dim, K)
        for j, (part, dim) in enumerate(zip(given[:count], dims[:count], strict=True))
    ]


def _weight_gradients(
    signature: Signature, given: Tensors, outputs: Tensors, recorded: Sequence[Tensor], K: int
) -> Tensors:
    """Return the gradients of the weights by sample, from the recorded gradients of U x and W h of all rows."""
    a = load_assembly(signature.cell)
    names = a.weight_names(signature.weights)
    packed = bool(signature.sizes)

    def by_sample(rows: Tensor) -> Tensor:
        """(K, rows of a sample, columns)"""
        if packed:
            by_row: Tensor = rows.unflatten(0, (-1, K))
            return by_row.transpose(0, 1)
        B, T, _ = signature.shape
        return rows.reshape(B, K, T, -1).transpose(0, 1).flatten(1, 2)

    slopes = {"ih": by_sample(recorded[a.states])}
    factors = {"ih": by_sample(given[0].flatten(0, -2))}
    if a.products:
        slopes["hh"] = by_sample(recorded[a.states + 1])
        factors["hh"] = by_sample(_multiplied(signature, given, outputs[list(a.outputs).index(0)], K))
    found = []
    for name in names:
        kind, of = name.split("_")
        slope = slopes[of]
        found.append(slope.sum(1) if kind == "bias" else slope.transpose(1, 2) @ factors[of])
    return found


def _multiplied(signature: Signature, given: Tensors, outputs: Tensor, K: int) -> Tensor:
    """Return what W multiplies at every step, in the order of the recorded rows: the first state of the step before."""
    s = signature
    mask = given[s.differentiable] if s.masked else None
    if s.sizes:
        sizes = [K * n for n in s.sizes]
        start = given[shared(s).stop] if s.states else outputs.new_zeros(sizes[0], outputs.shape[-1])
        before = [start, *(part[:n] for part, n in zip(outputs.split(sizes), sizes[1:], strict=False))]
        return torch.cat(before if mask is None else [part * mask[: len(part)] for part in before])
    start = given[shared(s).stop] if s.states else torch.zeros_like(outputs[:, 0])
    steps = torch.cat([start[:, None], outputs[:, :-1]], 1)
    return (steps if mask is None else steps * mask[:, None]).flatten(0, 1)
