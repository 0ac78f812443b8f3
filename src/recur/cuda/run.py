"""A scan on tensors of a GPU: the large products by cuBLAS, and what lies between them by the way that was chosen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import TypeAlias

import torch
from torch import Tensor

from recur.cuda import along, persistent, steps, tuning
from recur.cuda.choice import candidates, ordered
from recur.cuda.device import Device, device
from recur.cuda.driver import Prepared, bind_context
from recur.cuda.memory import Layout, layout
from recur.cuda.operands import Operands, precision, uses_tf32
from recur.cuda.results import Gradients, Results
from recur.cuda.source import NUMBERS, load
from recur.cuda.tuning import Kind
from recur.cuda.way import Problem, Way
from recur.native.memory import Signature
from recur.program.assembly import Assembly

Tensors = list[Tensor]

DTYPES = tuple(NUMBERS)


Select = Callable[[Problem, list[Way]], Sequence[Way | None]]
SELECT: Select | None = None
"""For tests and measurements: which of the ways that fit are tried, in this order; None is one step a launch."""
DELAYS = 0
"""For tests: not 0, every CTA waits now and then, differently for each such number."""


def _other(lay: Layout) -> ModuleType:
    """What carries the steps of a scan that no team does."""
    return along if along.fits(lay) is None else steps


Plan: TypeAlias = "tuple[Problem, Way, Prepared]"


def plan(lay: Layout, index: int, backward: bool, variant: bool) -> Plan | None:
    """The way that carries all steps in one launch, and its kernel; None where it is one step a launch."""
    if lay.not_persistent:
        return None
    key = index, backward, variant, uses_tf32()
    if SELECT is None and not DELAYS and key in lay.plans:
        kept: Plan | None = lay.plans[key]
        return kept
    p = persistent.problem(lay, backward)
    found = _plan(lay.of.cell, lay.of.dtype, p, index, variant, SELECT, DELAYS)
    if SELECT is None and not DELAYS:
        lay.plans[key] = found
    return found


@functools.lru_cache(maxsize=1024)
def _plan(
    cell: str, dtype: torch.dtype, p: Problem, index: int, variant: bool, select: Select | None, delays: int
) -> Plan | None:
    here = device(index)
    found = _measured_first(load(cell), dtype, p, here) if select is None else select(p, candidates(p, here))
    for way in found:
        if way is None:
            return None
        prepared = persistent.kernel(cell, dtype, p, way, index, variant, delays)
        if prepared is not None:
            return p, way, prepared
    return None


def kind_of(a: Assembly, dtype: torch.dtype, p: Problem) -> Kind:
    """A problem as tables have it."""
    single = "exact" if p.exact else "tf32"
    numbers = single if dtype == torch.float32 else str(dtype).removeprefix("torch.")
    return Kind(a.products, a.gates, p.H, p.S, numbers, "backward" if p.backward else "forward")


def _measured_first(a: Assembly, dtype: torch.dtype, p: Problem, here: Device) -> list[Way | None]:
    """All ways, what was measured to be the fastest on such a GPU first."""
    known = tuning.table(here.name)
    entry = known.nearest(kind_of(a, dtype, p)) if known else None
    if entry is None:
        return ordered(p, here)
    if not entry.way:
        return ordered(p, here, by_steps=True)
    try:
        return ordered(p, here, Way(**{name: int(value) for name, value in entry.way.items()}))
    except (TypeError, ValueError):  # of a table that was written by hand, or by another version
        return ordered(p, here)


def beside_cudnn(of: Signature, index: int, train: bool) -> float | None:
    """Our time over that of cuDNN for scans like this one, by the table of this GPU; None where it is not known."""
    lay, known = layout(of), tuning.table(device(index).name)
    if known is None or lay.not_persistent:
        return None
    passes = [persistent.problem(lay, backward) for backward in ((False, True) if train else (False,))]
    return known.beside_cudnn([kind_of(lay.assembly, of.dtype, p) for p in passes])


def words(of: Signature, index: int, train: bool, traced: bool) -> str:
    """How the steps of a scan are carried, for a reader."""
    lay = layout(of)
    if _other(lay) is along:
        return "every unit by itself, along time"
    ways = [plan(lay, index, False, train), *([plan(lay, index, True, traced)] if train else [])]
    said = [found[1].words() if found else "one step a launch" for found in ways]
    why = f" ({lay.not_persistent})" if lay.not_persistent else ""
    return "; back, ".join(dict.fromkeys(said)) + why


def on_device(device: torch.device) -> AbstractContextManager[None]:
    """That device the current one, which it nearly always is."""
    if torch.cuda.current_device() != device.index:
        return torch.cuda.device(device)
    bind_context(device.index)
    return nullcontext()


def forward(of: Signature, given: Sequence[Tensor], train: bool) -> Tensors:
    """Outputs, final states, and what the backward pass needs beside them."""
    lay = layout(of)
    with on_device(given[0].device), precision(of.dtype):
        ops = Operands(lay, given)
        made = lay.empty_results(given[0], train)
        n = len(lay.outputs)
        results = Results(lay, made[:n], made[n : n + len(lay.finals)], made[n + len(lay.finals) :])
        way = plan(lay, given[0].device.index, False, train)
        results.share = ops.share(results.share, biased=way is None)
        if way is not None:
            persistent.forward(ops, results, train, *way)
        else:
            _other(lay).forward(ops, results, train)
        return lay.shown(made)


def shapes(of: Signature, data: Tensor, train: bool) -> Tensors:
    """What `forward` returns, empty. Sizes may be symbols, by which nothing can be looked up."""
    lay = Layout(of)
    return lay.shown(lay.empty_results(data, train))


def whole(of: Signature, results: Tensors) -> Tensors:
    """Kernels write all of what they return."""
    return results


def gradient_shapes(of: Signature, given: Sequence[Tensor], traced: bool) -> Tensors:
    """The gradients of all that may have one, and what a trace records, empty."""
    lay = Layout(of)
    found = [part.new_empty(part.shape) for part in given[: of.differentiable]]
    found[0] = lay.by_row(given[0].new_empty(lay.N, lay.D))
    return found + [given[0].new_empty(shape) for shape in (lay.recorded if traced else [])]


def backward(
    of: Signature,
    kept: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    for_data: bool,
    for_state: bool,
    traced: bool,
    overwrite_saved: bool = False,
) -> tuple[list[Tensor | None], Tensors]:
    """As native's: the gradients, None where they are not asked for; and, if traced, what a trace records."""
    lay, given = layout(of), kept[: of.given]
    a, n = lay.assembly, len(lay.outputs)
    with on_device(given[0].device), precision(of.dtype):
        ops = Operands(lay, given)
        outputs = [lay.by_step(part) for part in kept[of.given : of.given + n]]
        results = Results(lay, outputs, (), kept[of.given + n :])
        arriving = [*gradients, *[None] * (n + a.states - len(gradients))]
        memory = results.share if overwrite_saved else None
        found = Gradients(lay, given[0], arriving, memory, traced)
        way = plan(lay, given[0].device.index, True, traced)
        pieces = pieces_of(lay, found)
        if way is not None:
            persistent.backward(ops, results, found, pieces, *way)
        else:
            _other(lay).backward(ops, results, found, traced)
        every = _gradients(lay, ops, results, found, pieces, for_data, for_state)
        return every, _recorded(lay, found, pieces) if traced else []


def _gradients(
    lay: Layout,
    ops: Operands,
    results: Results,
    found: Gradients,
    pieces: Tensors,
    for_data: bool,
    for_state: bool,
) -> list[Tensor | None]:
    """Of all that a scan is given, in the operator's order."""
    a, of, d = lay.assembly, lay.of, found.d_share
    every: list[Tensor | None] = [None] * of.given
    if for_data:
        every[0] = lay.by_row(torch.mm(d, ops.U))
    named = {"weight_ih": torch.mm(d.t(), ops.data)}
    if a.products:
        first = results.first if lay.P or 0 in a.outputs else results.states[0]
        assert first is not None
        named["weight_hh"] = ops.of_heads(ops.d_recurrent(first, pieces))
    if ops.bias_ih is not None:
        named["bias_ih"] = summed_over_rows(lay, d)
    if ops.bias_hh is not None:
        named["bias_hh"] = _bias_gradient(lay, named.get("bias_ih"), found)
    if found.d_projected is not None:
        assert results.states[0] is not None
        named["weight_hr"] = torch.mm(found.d_projected.t(), results.states[0])
    every[1 : 1 + of.weights] = [named[name] for name in lay.names]
    at = 1 + of.weights
    if found.sums is not None:
        every[at : at + of.extras] = found.sums.view(lay.S, a.extras, lay.H).sum(0).to(of.dtype).unbind()
    at += of.extras
    if for_state:
        every[at : at + of.states] = [part.to(of.dtype) for part in found.carried]
    return every


def summed_over_rows(lay: Layout, rows: Tensor) -> Tensor:
    """(N, …) → (…): step after step, then row after row. At once, PyTorch would take 128 MiB for sums of its own."""
    if not lay.uniform or lay.S == 1 or lay.steps == 1:
        return rows.sum(0)
    return rows.view(lay.steps, lay.S, -1).sum(0, dtype=lay.real).sum(0).to(rows.dtype)


def _bias_gradient(lay: Layout, of_gates: Tensor | None, found: Gradients) -> Tensor:
    """Of the recurrent biases: those of gates with the same gradient are summed up already."""
    a, H = lay.assembly, lay.H
    of_gates = summed_over_rows(lay, found.d_share) if of_gates is None else of_gates
    if a.product_places == list(range(a.gates)):
        return of_gates.clone()
    own = summed_over_rows(lay, found.d_own) if found.d_own is not None else None
    parts = [(of_gates, place) if place < a.gates else (own, place - a.gates) for place in a.product_places]
    return torch.cat([source[at * H : (at + 1) * H] for source, at in parts if source is not None])


def pieces_of(lay: Layout, found: Gradients) -> Tensors:
    """The gradients of W h, (N, …), product after product; those that lie side by side together."""
    a, H = lay.assembly, lay.H
    pieces: Tensors = []
    places, k = a.product_places, 0
    while k < a.products:
        many = 1
        while k + many < a.products and places[k + many] == places[k] + many and places[k + many] != a.gates:
            many += 1
        source, first = (found.d_share, places[k]) if places[k] < a.gates else (found.d_own, places[k] - a.gates)
        assert source is not None
        pieces.append(source[:, first * H : (first + many) * H])
        k += many
    return pieces


def _recorded(lay: Layout, found: Gradients, products: Tensors) -> Tensors:
    """In the caller's order."""
    states = [found.d_projected if lay.P else found.d_state[0], *found.d_state[1:]]
    packed = [part for part in states if part is not None] + [found.d_share]
    packed.append(torch.cat(products, dim=1) if products else found.d_share.new_empty(lay.N, 0))
    return [lay.by_row(part).reshape(lay.N, -1).clone() for part in packed]
