"""scan: the one function that carries a cell along a sequence, forward and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.cells.cell import Cell, Tensors, Weights, check_cell
from recur.errors import BackendError, unknown
from recur.ops import check, loop, parallel, repeated, torch_backend
from recur.ops import cpu_backend as native
from recur.ops import cuda_backend as cuda
from recur.ops.bptt import BPTT
from recur.ops.call import Backend, Call
from recur.ops.packing import Packing
from recur.ops.pytrees import register_result
from recur.ops.trace import Trace
from recur.ops.transforms import outside

BACKENDS: dict[str, Backend | ModuleType] = {
    "native": native,
    "cuda": cuda,
    "parallel": parallel,
    "torch": torch_backend,
    "loop": loop,
}
"""In the order in which `auto` tries them."""


class Scanned(NamedTuple):
    """What a scan returns.

    >>> net = recur.Recurrent("lstm", 3, 4)
    >>> found = recur.ops.scan(net.cell, net.weights(), torch.randn(2, 5, 3))
    >>> found.outputs.shape, found.state._fields, found.trace.backend
    (torch.Size([2, 5, 4]), ('h', 'c'), 'native')
    """

    outputs: Tensor
    """(B, T, H): the output after every step, the first state if the cell names no others; zero behind a row."""
    state: Tensors
    """The state after each row's last step, a named tuple of (B, H)."""
    trace: Trace
    """Which backend ran, and, after a backward pass, the gradients' norms."""


register_result(Scanned)


def scan(
    cell: Cell,
    weights: Weights,
    x: Tensor,
    state: check.GivenState | None = None,
    *,
    initial: check.GivenState | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    reset: Tensor | None = None,
    reverse: bool = False,
    mask: Tensor | None = None,
    bptt: str | Tensor | BPTT = "full",
    trace: bool = False,
    backend: str = "auto",
    products: str = "",
) -> Scanned:
    """Carry a cell along a batch of sequences.

    x        (B, T, D)
    weights  by torch's names without the layer: weight_ih (G·H, D), weight_hh (G·H, H), bias_ih, bias_hh (G·H,),
             and the cell's own; `cell.shapes(D, H)` lists them. With weight_hr (P, H) the first state is projected to
             P numbers by every step, and weight_hh is (G·H, P)
    state    the states to start from, (B, H) each; `initial` if not given
    initial  where a new sequence starts: (B, H) or (H,) each; if not given zero, or where the cell says
    lengths  (B,): row b ends after lengths[b] steps
    reset    (B, T), bool: a new sequence starts at this step
    reverse  take each sequence from its end; outputs stay where their inputs stand
    mask     (B, H): multiplies what W multiplies, the same at every step (recurrent dropout)
    bptt     what crosses time in the backward pass; see recur.ops.bptt
    trace    record ∂L/∂s_t in the backward pass, and the terms of ∂L/∂W
    backend  native, cuda, parallel, torch, loop, or auto: the first that can. One asked for by name runs or raises.
    products what matrix products read, if not float32 as it is: bfloat16, both sides rounded to it and sums in float32,
             gradients too (native does so for tensors of bfloat16 and under its autocast); or int8, for use alone:
             weights in 8 bits with a scale for each row, what they multiply in 16

    >>> cell = recur.make_cell("gru")
    >>> weights = {name: torch.randn(shape) for name, shape in cell.shapes(3, 4).items()}
    >>> x = torch.randn(2, 6, 3)
    >>> whole = recur.ops.scan(cell, weights, x).outputs
    >>> first = recur.ops.scan(cell, weights, x[:, :2])              # in two parts, the state carried
    >>> rest = recur.ops.scan(cell, weights, x[:, 2:], first.state)
    >>> torch.allclose(whole[:, 2:], rest.outputs, atol=1e-5)
    True
    """
    check_cell(cell)
    mode, form = BPTT.parse(bptt), None
    whole = lengths is None and reset is None and mask is None and initial is None
    if whole and not (reverse or trace or products) and backend in ("auto", "native", "cuda"):
        form = repeated.form_of(weights, x, state, mode, backend)
        found = None if form is None else repeated.repeat(form, cell, weights, x, state, mode)
        if found is not None:
            return Scanned(*found)
    check.check_products(products)
    B, T, _ = check.check_input(cell, x)
    kind, dtype = x.device.type, x.dtype
    cast = dtype != torch.float64 and _is_autocast(kind)
    if cast:
        # The whole scan in one dtype, as torch.nn casts its layers whole: a state keeps its dtype from step to step.
        # Until a backend is chosen all is in float32, in which it may compute; like torch, float64 is left alone.
        dtype = torch.get_autocast_dtype(kind)
        given = (weights, x, state, initial, mask)
        weights, x, state, initial, mask = (_cast(value, torch.float32) for value in given)
    widths = check.check_weights(cell, weights, x)
    if mask is not None:
        check.check_mask(cell, mask, B, widths[0], x)
    ends = None
    if lengths is not None or reset is not None:
        if torch.compiler.is_dynamo_compiling():
            why = "lengths and resets decide the shapes inside a scan: compile it without fullgraph=True"
            torch._dynamo.graph_break(msg=why)
        with outside():
            ends = check.check_lengths(cell, lengths, B, T)
            reset = check.check_reset(cell, reset, B, T)
    fresh = None
    if initial is not None:
        fresh = check.check_state(cell, "initial", initial, B, widths, x)
    elif cell.initial:
        fresh = cell.start(x, B, widths)
    start = fresh if state is None else check.check_state(cell, "state", state, B, widths, x)
    copies = mode.copies(T) if torch.is_grad_enabled() else 1
    if copies > 1:
        B, x, ends, reset, mask = B * copies, *(_repeated(value, copies) for value in (x, ends, reset, mask))
        fresh, start = (parts and tuple(_repeated(part, copies) for part in parts) for parts in (fresh, start))
    xi = packing = None
    if ends is not None or reset is not None or not mode.full:
        with outside():
            xi = mode.draw(B, T, copies)
            if ends is not None or reset is not None:
                packing = Packing.of(B, T, ends, reset, reverse, x.device)
                xi = xi if xi is None else packing.xi(xi, by_sequence=mode.by_sequence)
            elif xi is not None:
                xi = xi.t().reshape(-1)
    turned = reverse and packing is None  # whole rows, from their ends
    if packing is not None:
        start = start if start is None else packing.start(fresh, start)
        mask = mask if mask is None else mask[packing.row]

    record = Trace(cell if trace else None, x, packing, copies, turned)
    call = Call(
        cell, weights, x.flip(1) if turned else x, packing, widths, start, mask, xi, mode, dtype, record, products
    )
    chosen = _choose(call, backend)
    if form is not None and chosen in (native, cuda):
        repeated.keep(form, call, chosen)
    inside = chosen.computes_in(dtype)
    if cast:
        with torch.autocast(kind, enabled=False):
            outputs, final = chosen.run(call.to(inside))
    else:
        outputs, final = chosen.run(call if inside == dtype else call.to(inside))
    if inside != dtype:
        outputs, final = outputs.to(dtype), tuple(part.to(dtype) for part in final)

    if packing is None:
        outputs = outputs if outputs.dim() == 3 else outputs.view(T, B, -1).transpose(0, 1)
        outputs = outputs.flip(1) if turned else outputs
    else:
        outputs = packing.unpack(outputs)
        final = tuple(part[packing.last] for part in final)
    if copies > 1:
        outputs, final = _each_at_its_end(outputs, final, packing, turned, copies)
    return Scanned(outputs, cell.state(final), record)


def _repeated(value: Tensor | None, copies: int) -> Any:
    """The rows of a batch, all of them so many times."""
    return value if value is None else value.repeat(copies, *[1] * (value.dim() - 1))


def _each_at_its_end(
    outputs: Tensor, final: Sequence[Tensor], packing: Packing | None, turned: bool, copies: int
) -> tuple[Tensor, Sequence[Tensor]]:
    """Sliding truncation: of every step, the copy of its row in which it ends a window of τ steps.

    All copies hold the same numbers; they differ in where the way back is cut.
    """
    B, T = outputs.shape[0] // copies, outputs.shape[1]
    if packing is None:
        position = torch.arange(T, device=outputs.device).expand(B, T)
        last = position[:, -1]
        position = position.flip(1) if turned else position
    else:
        position = packing.position[:B]
        last = packing.steps[packing.last[:B]] - 1
    of_step, of_row, row = (position + 1) % copies, (last + 1) % copies, torch.arange(B, device=outputs.device)
    by_copy = outputs.unflatten(0, (copies, B))
    chosen = by_copy[of_step, row[:, None], torch.arange(T, device=outputs.device)]
    return chosen, [part.unflatten(0, (copies, B))[of_row, row] for part in final]


def _is_autocast(kind: str) -> bool:
    available = kind in ("cpu", "cuda") or torch.amp.is_autocast_available(kind)
    return available and torch.is_autocast_enabled(kind)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(dtype)
    if isinstance(value, Mapping):
        return {name: _cast(item, dtype) for name, item in value.items()}
    return tuple(_cast(item, dtype) for item in value) if isinstance(value, tuple | list) else value


def check_backend(backend: object) -> None:
    if not isinstance(backend, str) or backend not in ("auto", *BACKENDS):
        raise BackendError(unknown("backend", backend, ["auto", *BACKENDS]))


def _choose(call: Call, backend: str) -> Backend | ModuleType:
    """The backend to run, written into the call's trace."""
    if call.products:
        reason = native.unsupported_reason(call) if backend in ("auto", "native") else f"{backend!r} was asked for"
        if reason is not None:
            raise BackendError(f"products={call.products!r} are for backend 'native', which cannot run this: {reason}")
        backend = "native"
    if backend == "auto":
        for name, module in BACKENDS.items():
            reason = module.unsupported_reason(call)
            if reason is None and module is cuda:
                reason = cuda.slower_reason(call)
            if reason is None:
                call.trace.backend = name
                return module
            call.trace.passed_over[name] = reason
    check_backend(backend)
    reason = BACKENDS[backend].unsupported_reason(call)
    if reason is not None:
        raise BackendError(f"backend {backend!r} cannot run this: {reason}; take backend='auto' or 'loop'")
    call.trace.backend = backend
    return BACKENDS[backend]
