"""Scans of a form that was taken before: what was checked and decided then holds, and the operator is called at once.

Of a call of a few steps, checking, choosing and preparing would take longer than the arithmetic. So a scan that is no
more than a cell, its weights, whole rows and perhaps a state leaves, for its form, what it came to.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.cells.cell import GATE_WEIGHTS, Cell, State, Tensors, Weights
from recur.cells.found_out import found_out
from recur.compiler import program_text
from recur.compiler.signature import Signature, make_signature
from recur.ops import cuda_backend as cuda
from recur.ops import operator
from recur.ops.bptt import BPTT
from recur.ops.call import Backend, Call
from recur.ops.check import GivenState
from recur.ops.cpu import operators
from recur.ops.trace import Trace

MAX_FORMS = 256
"""For how many forms a cell keeps what they came to."""


class Known(NamedTuple):
    """What a form came to."""

    signature: Signature
    names: list[str]
    """Of the weights, in the operator's order."""
    widths: tuple[int, ...]
    states: type[Tensors]
    backend: str


def form_of(
    weights: Weights, x: Tensor, state: GivenState | None, mode: BPTT, backend: str = "auto"
) -> Hashable | None:
    """All that checks and the choice of a backend depend on, beside the cell; None where more than that matters."""
    if not operators.is_eager(x) or program_text.transformed():
        return None
    kind = x.device.type
    if kind not in operators.IMPLEMENTATIONS or torch.is_autocast_enabled(kind):
        return None
    if type(weights) is not dict or not isinstance(state, tuple | None) or not mode.full or mode.clip is not None:
        return None
    try:
        parts = [(name, w.shape, w.dtype, w.device, w.layout) for name, w in weights.items()]
        parts += [("", part.shape, part.dtype, part.device, part.layout) for part in state or ()]
        # On a GPU `auto` weighs cuDNN, whose time depends on these.
        weighed = (torch.is_grad_enabled(), cuda.uses_tf32()) if kind == "cuda" else ()
        return backend, weighed, x.shape, x.dtype, x.device, x.layout, *parts
    except (AttributeError, RuntimeError):  # what is no tensor, or a nested one
        return None


def keep(form: Hashable, call: Call, backend: Backend | ModuleType) -> None:
    """What a call came to that this backend took, if it is nothing but the operator."""
    cell, x = call.cell, call.x
    step, text = program_text.programs_of(cell, "bias_ih" in call.weights)
    used_as_they_are = all(step.weights[value].op == "w" for value in step.prepared)
    prepares = not used_as_they_are or cell.heads > 1 or cell.initial or backend.computes_in(call.dtype) != call.dtype
    if prepares or cell.outputs or not all(part.is_contiguous() for part in call.start or ()):
        return
    names = [name for name in GATE_WEIGHTS if name in call.weights]
    own = [list(cell.extras)[int(step.weights[value].leaf)] for value in step.prepared]
    given, extras = ([call.weights[name] for name in some] for some in (names, own))
    of, _ = make_signature(x, given, extras, call.start or (), None, None, None, 0.0, text, "")
    forms = found_out(cell).setdefault("forms", {})
    if len(forms) == MAX_FORMS:
        forms.clear()
    forms[form] = Known(of, names + own, call.widths, cell.tuple_of("s"), backend.name)


def repeat(
    form: Hashable, cell: Cell, weights: Weights, x: Tensor, state: Any, mode: BPTT
) -> tuple[Tensor, Tensors, Trace] | None:
    """Outputs, final state and trace, if the form is known."""
    known: Known | None = found_out(cell).get("forms", {}).get(form)
    if known is None:
        return None
    trace = Trace(None, x, None)
    trace.backend = known.backend
    given = [x, *[weights[name] for name in known.names], *(state or ())]
    if known.backend == cuda.name:
        trace.say_way(functools.partial(cuda.way, x.device.index, False, known.signature, operators.is_recorded(given)))
    again = functools.partial(_by_loop, cell, weights, x, state, mode, trace, known.widths)
    outputs, *final = operators.run(None, again, known.signature, given, True)
    return outputs, known.states._make(final), trace


def _by_loop(
    cell: Cell,
    weights: Weights,
    x: Tensor,
    state: State | None,
    mode: BPTT,
    trace: Trace,
    widths: tuple[int, ...],
    *rest: Any,
) -> list[Tensor | None]:
    call = Call(cell, weights, x, None, widths, state, None, None, mode, x.dtype, trace)
    return operator.by_loop(call, *rest)
