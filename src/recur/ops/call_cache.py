"""Cache of prepared calls: a repeated scan skips checks, the choice of a backend and preparation.

For a scan of a few steps these take longer than the arithmetic. A call can be cached if it has nothing but a cell, its
weights, sequences of full length and perhaps a state. The entries of a cell are in its `CellCache`: they are dropped
with the cell, and when one of its options changes.

On a GPU, two prepared calls over one x run in both directions at once (`scan_both`): one kernel launch runs the steps
of both, and both are one node of autograd.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.cells._cache import cache_of
from recur.cells.cell import GATE_WEIGHTS, Cell, Tensors, Weights
from recur.compat import in_transform, is_eager, keeps_graph
from recur.compiler import programs
from recur.compiler.programs import Signature, make_signature
from recur.ops import backends, operator
from recur.ops.backends import CUDA, CudaBackend, NativeBackend, describe_kernels
from recur.ops.bptt import BPTT
from recur.ops.call import GivenState, ScanCall
from recur.ops.trace import ScanOutput, Trace

MAX_CALLS = 256
"""The largest number of entries per cell; the next one clears them."""


class PreparedCall(NamedTuple):
    """Everything that a call with a known signature needs besides its tensors."""

    signature: Signature
    names: list[str]
    """The names of the weights, in the order of the operator."""
    widths: tuple[int, ...]
    states: type[Tensors]
    backend: str


def call_signature(
    weights: Weights, x: Tensor, state: GivenState | None, mode: BPTT, backend: str = "auto"
) -> Hashable | None:
    """Return everything that checks and the choice of a backend depend on, besides the cell.

    None if the call depends on more than that and cannot be cached.
    """
    if not is_eager(x) or in_transform():
        return None
    kind = x.device.type
    if kind not in ("cpu", "cuda") or torch.is_autocast_enabled(kind):
        return None
    if type(weights) is not dict or not isinstance(state, tuple | None) or not mode.full or mode.clip is not None:
        return None
    try:
        parts = [(name, w.shape, w.dtype, w.device, w.layout) for name, w in weights.items()]
        parts += [("", part.shape, part.dtype, part.device, part.layout) for part in state or ()]
        return backend, _cudnn_options(kind), x.shape, x.dtype, x.device, x.layout, *parts
    except (AttributeError, RuntimeError):  # not a tensor, or a nested one
        return None


def _cudnn_options(kind: str) -> tuple[bool, ...]:
    """Return what the time of cuDNN depends on besides shapes: on a GPU `auto` compares with it."""
    if kind != "cuda":
        return ()
    from recur.ops.cuda.layout import uses_tf32

    return torch.is_grad_enabled(), uses_tf32()


def find(cell: Cell, signature: Hashable) -> PreparedCall | None:
    """Return the prepared call of a cell with this signature, if there is one."""
    found: PreparedCall | None = cache_of(cell).calls.get(signature)
    return found


def store(signature: Hashable, call: ScanCall, backend: NativeBackend | CudaBackend) -> None:
    """Keep a call that a backend has accepted, if running it is a call of the operator and nothing else."""
    cell, x = call.cell, call.x
    step, text = programs.programs_of(cell, "bias_ih" in call.weights)
    unchanged = all(step.weights[value].op == "w" for value in step.prepared)
    prepares = not unchanged or cell.heads > 1 or cell.initial or backend.computes_in(call.dtype) != call.dtype
    if prepares or cell.outputs or not all(part.is_contiguous() for part in call.start or ()):
        return
    names = [name for name in GATE_WEIGHTS if name in call.weights]
    own = [list(cell.extras)[int(step.weights[value].leaf)] for value in step.prepared]
    given, extras = ([call.weights[name] for name in some] for some in (names, own))
    made, _ = make_signature(x, given, extras, call.start or (), None, None, None, 0.0, text, "")
    calls = cache_of(cell).calls
    if len(calls) >= MAX_CALLS:
        calls.clear()
    calls[signature] = PreparedCall(made, names + own, call.widths, cell.tuple_of("s"), backend.name)


def run_prepared(
    prepared: PreparedCall, cell: Cell, weights: Weights, x: Tensor, state: Any, mode: BPTT
) -> tuple[Tensor, Tensors, Trace]:
    """Return outputs, final state and trace of a prepared call."""
    trace = Trace(None, x, None)
    trace.backend = prepared.backend
    given = [x, *[weights[name] for name in prepared.names], *(state or ())]
    if prepared.backend == CUDA.name:
        recorded = operator.is_recorded(given)
        describe = functools.partial(backends.describe_kernels, x.device.index, False, prepared.signature, recorded)
        trace.describe = describe
    recompute = functools.partial(differentiate_prepared, cell, weights, x, mode, trace, prepared.widths)
    outputs, *final = operator.run(None, recompute, prepared.signature, given, True)
    return outputs, prepared.states._make(final), trace


def differentiate_prepared(
    cell: Cell,
    weights: Weights,
    x: Tensor,
    mode: BPTT,
    trace: Trace,
    widths: tuple[int, ...],
    *rest: Any,
) -> list[Tensor | None]:
    """Compute the gradients of a prepared call by operations of PyTorch; see `compiled.differentiate_operator`."""
    call = ScanCall(cell, weights, x, None, widths, None, None, None, mode, x.dtype, trace)
    return backends.differentiate_operator(call, *rest)


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
    signature = call_signature(weights[0], x, states[0], mode, backend)
    if signature is None or call_signature(weights[1], x, states[1], mode, backend) != signature:
        return None
    prepared = find(cell, signature)
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
        trace.describe = functools.partial(describe_kernels, x.device.index, False, prepared.signature, recorded, 2)
    recompute = functools.partial(_differentiate, cell, weights, mode, prepared, traces)
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
        found.append(differentiate_prepared(cell, weights[k], x, mode, traces[k], prepared.widths, *arguments))
    first, second = found[0][0], found[1][0]
    of_data = first if second is None else second.flip(1) if first is None else first + second.flip(1)
    return [of_data, *found[0][1:], *found[1][1:]]
