"""A scan on tensors of a GPU: the large products by cuBLAS, and what lies between them by the way that was chosen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from recur.compiler.assembly import Assembly
from recur.compiler.signature import Signature
from recur.ops.cuda import along, persistent, tuning
from recur.ops.cuda.after import Asked
from recur.ops.cuda.backward_pass import Backward
from recur.ops.cuda.choice import candidates, ordered
from recur.ops.cuda.device import device
from recur.ops.cuda.driver import bind_context
from recur.ops.cuda.forward_pass import Forward
from recur.ops.cuda.memory import Layout, layout
from recur.ops.cuda.operands import uses_tf32
from recur.ops.cuda.scratch import Chosen
from recur.ops.cuda.source import NUMBERS, load
from recur.ops.cuda.tuning import Kind
from recur.ops.cuda.way import Problem, Way

Tensors = list[Tensor]

DTYPES = tuple(NUMBERS)


Select = Callable[[Problem, list[Way]], Sequence[Way | None]]
SELECT: Select | None = None
"""For tests and measurements: which of the ways that fit are tried, in this order; None is one step a launch."""
DELAYS = 0
"""For tests: with a number in the lower 16 bits, CTAs and warps wait now and then, differently for each such number."""
ORDERED, PLANTED = 1 << 16, 1 << 17
"""For tests, added to `DELAYS`: a barrier more than a cluster needs, and one less than any way needs."""


def plan(lay: Layout, index: int, backward: bool, variant: bool, directions: int = 1) -> Chosen | None:
    """The way that carries all steps in one launch, and its kernel; None where it is one step a launch."""
    if lay.not_persistent:
        return None
    key = index, backward, variant, uses_tf32(), directions
    if SELECT is None and not DELAYS and key in lay.plans:
        kept: Chosen | None = lay.plans[key]
        return kept
    p = persistent.problem(lay, backward, directions)
    found = _plan(lay.of.cell, lay.of.dtype, p, index, variant, SELECT, DELAYS)
    if SELECT is None and not DELAYS:
        lay.plans[key] = found
    return found


@functools.lru_cache(maxsize=1024)
def _plan(
    cell: str, dtype: torch.dtype, p: Problem, index: int, variant: bool, select: Select | None, delays: int
) -> Chosen | None:
    found = _measured_first(load(cell), dtype, p, index) if select is None else select(p, candidates(p, device(index)))
    for way in found:
        if way is None:
            return None
        prepared = persistent.kernel(cell, dtype, p, way, index, variant, delays)
        if prepared is not None:
            return p, *prepared
    return None


def kind_of(a: Assembly, dtype: torch.dtype, p: Problem) -> Kind:
    """A problem as tables have it."""
    single = "exact" if p.exact else "tf32"
    numbers = single if dtype == torch.float32 else str(dtype).removeprefix("torch.")
    return Kind(a.products, a.gates, p.H, p.directions * p.S, numbers, "backward" if p.backward else "forward")


def ways(lay: Layout, p: Problem, index: int) -> list[Way | None]:
    """In the order in which they are tried; None is one step a launch."""
    return _measured_first(lay.assembly, lay.of.dtype, p, index)


def _measured_first(a: Assembly, dtype: torch.dtype, p: Problem, index: int) -> list[Way | None]:
    """All ways, what was measured to be the fastest on such a GPU first."""
    here = device(index)
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


def words(of: Signature, index: int, train: bool, traced: bool, directions: int = 1) -> str:
    """How the steps of a scan are carried, for a reader."""
    lay = layout(of)
    if along.fits(lay) is None:
        return "every unit by itself, along time"
    ways = [plan(lay, index, False, train, directions)]
    ways += [plan(lay, index, True, traced, directions)] if train else []
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
    index = given[0].device.index
    with on_device(given[0].device):
        key = of, train, index, uses_tf32()
        made = _forward_pass(*key) if _is_plain() else _forward_pass.__wrapped__(*key)
        return made(given)


@functools.lru_cache(maxsize=512)
def _forward_pass(of: Signature, train: bool, index: int, tf32: bool) -> Forward:
    lay = layout(of)
    return Forward(lay, train, index, tf32, plan(lay, index, False, train))


def _is_plain() -> bool:
    """Whether nothing was changed for a test or a measurement."""
    return SELECT is None and not DELAYS


def shapes(of: Signature, data: Tensor, train: bool) -> Tensors:
    """What `forward` returns, empty. Sizes may be symbols, by which nothing can be looked up."""
    lay = Layout(of)
    return lay.shown(lay.empty_results(data, train))


def can_go_together(of: Signature, index: int, train: bool) -> bool:
    """Whether scans of this form from both ends of the same x can be carried by one launch, and back."""
    lay = layout(of)
    if lay.not_persistent or not lay.uniform or of.masked or of.weighted:
        return False
    with on_device(torch.device("cuda", index)):
        passes = [plan(lay, index, False, train, 2), *([plan(lay, index, True, False, 2)] if train else [])]
    return None not in passes


def forward_together(of: Signature, given: Sequence[Tensor], others: Sequence[Tensor], train: bool) -> Tensors:
    """What two scans return, one from the start of x and one from its end."""
    index = given[0].device.index
    with on_device(given[0].device):
        here, there = _forward_passes(of, train, index, uses_tf32(), _is_plain())
        return here.together(given, there, others)


@functools.lru_cache(maxsize=256)
def _forward_passes(of: Signature, train: bool, index: int, tf32: bool, plain: bool) -> tuple[Forward, Forward]:
    lay = layout(of)
    chosen = plan(lay, index, False, train, 2)
    return Forward(lay, train, index, tf32, chosen), Forward(lay, train, index, tf32, chosen, True)


def backward_together(
    of: Signature,
    kept: Sequence[Sequence[Tensor]],
    gradients: Sequence[Sequence[Tensor | None]],
    for_data: bool,
    for_state: bool,
    overwrite_saved: bool,
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """The gradients of two such scans; the first has that of x."""
    index = kept[0][0].device.index
    with on_device(kept[0][0].device):
        arriving = tuple([tuple([part is not None for part in parts]) for parts in gradients])
        key = of, arriving, for_data, for_state, overwrite_saved, index, uses_tf32(), _is_plain()
        here, there = _backward_passes(*key)
        return here.together(kept[0], gradients[0], there, kept[1], gradients[1])


@functools.lru_cache(maxsize=256)
def _backward_passes(
    of: Signature,
    arriving: tuple[tuple[bool, ...], ...],
    for_data: bool,
    for_state: bool,
    overwrite: bool,
    index: int,
    tf32: bool,
    plain: bool,
) -> tuple[Backward, Backward]:
    lay = layout(of)
    chosen = plan(lay, index, True, False, 2)
    asked = [Asked(came, for_data, for_state, False, overwrite) for came in arriving]
    return Backward(lay, asked[0], index, tf32, chosen), Backward(lay, asked[1], index, tf32, chosen, True)


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
    index = kept[0].device.index
    with on_device(kept[0].device):
        arriving = tuple([part is not None for part in gradients])
        key = of, Asked(arriving, for_data, for_state, traced, overwrite_saved), index, uses_tf32()
        made = _backward_pass(*key) if _is_plain() else _backward_pass.__wrapped__(*key)
        return made(kept, gradients)


@functools.lru_cache(maxsize=512)
def _backward_pass(of: Signature, asked: Asked, index: int, tf32: bool) -> Backward:
    lay = layout(of)
    return Backward(lay, asked, index, tf32, plan(lay, index, True, asked.traced))
