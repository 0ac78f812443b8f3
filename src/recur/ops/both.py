"""A scan from the start of x and one from its end, at once: one launch on a GPU carries the steps of both."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from recur.cells.cell import Cell, Weights
from recur.cells.found_out import found_out
from recur.ops import cuda_backend as cuda
from recur.ops import repeated
from recur.ops.bptt import BPTT
from recur.ops.check import GivenState
from recur.ops.cpu import operators, together
from recur.ops.repeated import Known
from recur.ops.scan import Scanned
from recur.ops.trace import Trace

States = tuple[GivenState | None, GivenState | None]


def scan_both(
    cell: Cell, weights: tuple[Weights, Weights], x: Tensor, states: States, bptt: str | Tensor | BPTT, backend: str
) -> list[Scanned] | None:
    """What the two return, the second one's outputs where their inputs stand; None where they are not of a form that
    was scanned on a GPU before, or no launch can carry both."""
    if x.device.type != "cuda" or backend not in ("auto", "cuda") or torch.compiler.is_compiling():
        return None
    mode = BPTT.parse(bptt)
    form = repeated.form_of(weights[0], x, states[0], mode, backend)
    if form is None or repeated.form_of(weights[1], x, states[1], mode, backend) != form:
        return None
    known: Known | None = found_out(cell).get("forms", {}).get(form)
    if known is None or known.backend != cuda.name:
        return None
    own = [[w[name] for name in known.names] + list(state or ()) for w, state in zip(weights, states, strict=True)]
    if any(not part.is_contiguous() for state in states for part in state or ()):
        return None
    given = [x, *own[0], *own[1]]
    recorded = operators.is_recorded(given)
    if not cuda.can_go_together(known.signature, x.device.index, recorded):
        return None
    traces = [Trace(None, x, None), Trace(None, x, None, 1, True)]
    for trace in traces:
        trace.backend = known.backend
        trace.say_way(functools.partial(cuda.way_of_both, x.device.index, known.signature, recorded))
    again = functools.partial(_by_loop, cell, weights, states, mode, known, traces)
    results = together.run(known.signature, again, given)
    half = len(results) // 2
    return [
        Scanned(outputs, known.states._make(final), trace)
        for (outputs, *final), trace in zip((results[:half], results[half:]), traces, strict=True)
    ]


def _by_loop(
    cell: Cell,
    weights: tuple[Weights, Weights],
    states: States,
    mode: BPTT,
    known: Known,
    traces: list[Trace],
    arriving: Sequence[Tensor | None],
    given: Sequence[Tensor],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients by operations of PyTorch, which have derivatives: of each direction for itself."""
    of, half = known.signature, len(arriving) // 2
    found: list[list[Tensor | None]] = []
    for k, ends in enumerate((slice(1, of.given), slice(of.given, 2 * of.given - 1))):
        x = given[0].flip(1) if k else given[0]
        outputs, *final = arriving[k * half : (k + 1) * half]
        outputs = outputs.flip(1) if k and outputs is not None else outputs
        rest, w, e = given[ends], of.weights, of.weights + of.extras
        arguments = [outputs, *final], x, rest[:w], rest[w:e], rest[e:], (wanted[0], *wanted[ends])
        state = None if states[k] is None else tuple(rest[e:])
        found.append(repeated._by_loop(cell, weights[k], x, state, mode, traces[k], known.widths, *arguments))
    first, second = found[0][0], found[1][0]
    of_data = first if second is None else second.flip(1) if first is None else first + second.flip(1)
    return [of_data, *found[0][1:], *found[1][1:]]
