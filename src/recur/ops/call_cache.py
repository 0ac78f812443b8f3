"""Cache of prepared calls: a repeated scan skips checks, the choice of a backend and preparation.

For a scan of a few steps these take longer than the arithmetic. A call can be cached if it has nothing but a cell, its
weights, sequences of full length and perhaps a state. The entries of a cell are in its `CellCache`: they are dropped
with the cell, and when one of its options changes.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.cells._cache import cache_of
from recur.cells.cell import GATE_WEIGHTS, Cell, State, Tensors, Weights
from recur.compat import in_transform, is_eager
from recur.compiler import program_text
from recur.compiler.signature import Signature, make_signature
from recur.ops import compiled, operator
from recur.ops.bptt import BPTT
from recur.ops.call import ScanCall
from recur.ops.checks import GivenState
from recur.ops.compiled import CUDA, CudaBackend, NativeBackend
from recur.ops.trace import Trace

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
    step, text = program_text.programs_of(cell, "bias_ih" in call.weights)
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
        describe = functools.partial(compiled.describe_kernels, x.device.index, False, prepared.signature, recorded)
        trace.set_kernels(describe)
    recompute = functools.partial(differentiate_prepared, cell, weights, x, state, mode, trace, prepared.widths)
    outputs, *final = operator.run(None, recompute, prepared.signature, given, True)
    return outputs, prepared.states._make(final), trace


def differentiate_prepared(
    cell: Cell,
    weights: Weights,
    x: Tensor,
    state: State | None,
    mode: BPTT,
    trace: Trace,
    widths: tuple[int, ...],
    *rest: Any,
) -> list[Tensor | None]:
    """Compute the gradients of a prepared call by operations of PyTorch; see `compiled.differentiate_operator`."""
    call = ScanCall(cell, weights, x, None, widths, state, None, None, mode, x.dtype, trace)
    return compiled.differentiate_operator(call, *rest)
