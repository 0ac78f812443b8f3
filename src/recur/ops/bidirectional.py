"""Scans of one x in both directions at once: one kernel launch on a GPU runs the steps of both.

The two scans are one node of autograd. If the backward pass is itself differentiated, the gradients are computed by
operations of PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.cells.cell import Cell, Weights
from recur.compat import keeps_graph
from recur.compiler.signature import Signature
from recur.ops import call_cache, operator
from recur.ops.bptt import BPTT
from recur.ops.call_cache import PreparedCall
from recur.ops.checks import GivenState
from recur.ops.compiled import CUDA, describe_kernels
from recur.ops.scan import ScanOutput
from recur.ops.trace import Trace

States = tuple[GivenState | None, GivenState | None]

Recompute = Callable[[Sequence[Tensor | None], Sequence[Tensor], Sequence[bool]], list[Tensor | None]]
"""Computes gradients by operations of PyTorch: (incoming gradients, given tensors, which gradients) → gradients."""


def scan_both(
    cell: Cell, weights: tuple[Weights, Weights], x: Tensor, states: States, bptt: str | Tensor | BPTT, backend: str
) -> list[ScanOutput] | None:
    """Scan x forward and in reverse, each with its own weights; outputs are at the positions of their inputs.

    None if a scan with this signature has not run on the GPU before, or if no launch can run both directions.
    """
    if x.device.type != "cuda" or backend not in ("auto", "cuda") or torch.compiler.is_compiling():
        return None
    mode = BPTT.parse(bptt)
    signature = call_cache.call_signature(weights[0], x, states[0], mode, backend)
    if signature is None or call_cache.call_signature(weights[1], x, states[1], mode, backend) != signature:
        return None
    prepared = call_cache.find(cell, signature)
    if prepared is None or prepared.backend != CUDA.name:
        return None
    own = [[w[name] for name in prepared.names] + list(state or ()) for w, state in zip(weights, states, strict=True)]
    if any(not part.is_contiguous() for state in states for part in state or ()):
        return None
    given = [x, *own[0], *own[1]]
    recorded = operator.is_recorded(given)
    if not operator.kernels_for(x).can_go_together(prepared.signature, x.device.index, recorded):
        return None
    traces = [Trace(None, x, None), Trace(None, x, None, 1, True)]
    for trace in traces:
        trace.backend = prepared.backend
        trace.set_kernels(functools.partial(describe_kernels, x.device.index, False, prepared.signature, recorded, 2))
    recompute = functools.partial(_differentiate, cell, weights, states, mode, prepared, traces)
    results = run(prepared.signature, recompute, given)
    half = len(results) // 2
    return [
        ScanOutput(outputs, prepared.states._make(final), trace)
        for (outputs, *final), trace in zip((results[:half], results[half:]), traces, strict=True)
    ]


class DirectionPair(NamedTuple):
    """Two scans with the same signature that share x."""

    signature: Signature
    recompute: Recompute

    def split(self, given: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Split (x, tensors of the first, tensors of the second) into the tensors of each scan."""
        count = self.signature.given
        return list(given[:count]), [given[0], *given[count:]]


class BidirectionalScanFunction(torch.autograd.Function):
    """Both scans as one node of autograd."""

    @staticmethod
    def forward(ctx: Any, pair: DirectionPair, *given: Tensor) -> tuple[Tensor, ...]:
        signature = pair.signature
        results = operator.kernels_for(given[0]).forward_together(signature, *pair.split(given), True)
        outputs, visible = operator.counts(signature)
        here, there = results[: len(results) // 2], results[len(results) // 2 :]
        ctx.pair = pair
        ctx.save_for_backward(*given, *here[:outputs], *here[visible:], *there[:outputs], *there[visible:])
        ctx.set_materialize_grads(False)
        return (*here[:visible], *there[:visible])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        pair: DirectionPair = ctx.pair
        signature, saved, wanted = pair.signature, ctx.saved_tensors, ctx.needs_input_grad[1:]
        count, middle = 2 * signature.given - 1, len(gradients) // 2
        given, rest = saved[:count], saved[count:]
        if torch.is_grad_enabled():
            return None, *pair.recompute(gradients, given, wanted)
        each = [
            [*part, *results]
            for part, results in zip(pair.split(given), (rest[: len(rest) // 2], rest[len(rest) // 2 :]), strict=True)
        ]
        first_states = wanted[signature.given - signature.states : signature.given]
        for_state = any(first_states) or any(wanted[count - signature.states :])
        here, there = operator.kernels_for(given[0]).backward_together(
            signature, each, (gradients[:middle], gradients[middle:]), wanted[0],
            bool(signature.states) and for_state, not keeps_graph(),
        )  # fmt: skip
        return None, *here, *there[1:]


def run(signature: Signature, recompute: Recompute, given: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return outputs and final states of both scans. given: x, then weights and states of the one and of the other."""
    pair = DirectionPair(signature, recompute)
    if operator.is_recorded(list(given)):
        found: tuple[Tensor, ...] = BidirectionalScanFunction.apply(pair, *given)
        return found
    here, there = pair.split(given)
    results: list[Tensor] = operator.kernels_for(given[0]).forward_together(pair.signature, here, there, False)
    return results


def _differentiate(
    cell: Cell,
    weights: tuple[Weights, Weights],
    states: States,
    mode: BPTT,
    prepared: PreparedCall,
    traces: list[Trace],
    arriving: Sequence[Tensor | None],
    given: Sequence[Tensor],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Compute the gradients of each direction by operations of PyTorch, and add the two gradients of x."""
    signature, half = prepared.signature, len(arriving) // 2
    found: list[list[Tensor | None]] = []
    for k, ends in enumerate((slice(1, signature.given), slice(signature.given, 2 * signature.given - 1))):
        x = given[0].flip(1) if k else given[0]
        outputs, *final = arriving[k * half : (k + 1) * half]
        outputs = outputs.flip(1) if k and outputs is not None else outputs
        rest, w, e = given[ends], signature.weights, signature.weights + signature.extras
        arguments = [outputs, *final], x, rest[:w], rest[w:e], rest[e:], (wanted[0], *wanted[ends])
        state = None if states[k] is None else tuple(rest[e:])
        found.append(
            call_cache.differentiate_prepared(cell, weights[k], x, state, mode, traces[k], prepared.widths, *arguments)
        )
    first, second = found[0][0], found[1][0]
    of_data = first if second is None else second.flip(1) if first is None else first + second.flip(1)
    return [of_data, *found[0][1:], *found[1][1:]]
