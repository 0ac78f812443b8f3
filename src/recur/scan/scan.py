"""scan: the one function that carries a cell along a sequence, forward and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.bptt import BPTT
from recur.cells.cell import Cell, Tensors, Weights, check_cell
from recur.errors import BackendError, unknown
from recur.scan import check, loop, native, parallel, torch_backend
from recur.scan.call import Backend, Call
from recur.scan.packing import Packing
from recur.scan.trace import Trace

BACKENDS: dict[str, Backend | ModuleType] = {
    "native": native,
    "parallel": parallel,
    "torch": torch_backend,
    "loop": loop,
}
"""In the order in which `auto` tries them."""


class Scanned(NamedTuple):
    """What a scan returns."""

    outputs: Tensor
    """(B, T, H): the output after every step, the first state if the cell names no others; zero behind a row."""
    state: Tensors
    """The state after each row's last step, a named tuple of (B, H)."""
    trace: Trace
    """Which backend ran, and, after a backward pass, the gradients' norms."""


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
    bptt     what crosses time in the backward pass; see recur.bptt
    trace    record ∂L/∂s_t in the backward pass, and the terms of ∂L/∂W
    backend  native, parallel, torch, loop, or auto: the first that can. One asked for by name runs or raises.
    """
    check_cell(cell)
    B, T, _ = check.check_input(cell, x)
    kind = x.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        # The whole scan in one dtype, as torch.nn casts its layers whole: a state keeps its dtype from step to step.
        dtype = torch.get_autocast_dtype(kind)
        weights, x, state, initial, mask = (_cast(value, dtype) for value in (weights, x, state, initial, mask))
        with torch.autocast(kind, enabled=False):
            return scan(
                cell,
                weights,
                x,
                state,
                initial=initial,
                lengths=lengths,
                reset=reset,
                reverse=reverse,
                mask=mask,
                bptt=bptt,
                trace=trace,
                backend=backend,
            )
    widths = check.check_weights(cell, weights, x)
    check.check_mask(cell, mask, B, widths[0], x)
    ends = check.check_lengths(cell, lengths, B, T)
    reset = check.check_reset(cell, reset, B, T)
    fresh = check.check_state(cell, "initial", initial, B, widths, x)
    if fresh is None and cell.initial:
        fresh = cell.start(x, B, widths)
    start = fresh if state is None else check.check_state(cell, "state", state, B, widths, x)
    mode = BPTT.parse(bptt)
    copies = mode.copies(T) if torch.is_grad_enabled() else 1
    if copies > 1:
        B, x, ends, reset, mask = B * copies, *(_repeated(value, copies) for value in (x, ends, reset, mask))
        fresh, start = (parts and tuple(_repeated(part, copies) for part in parts) for parts in (fresh, start))
    xi = mode.draw(B, T, copies)

    packing = None
    if ends is None and reset is None and not reverse:
        sizes = [B] * T
        xi = xi if xi is None else xi.t().reshape(-1)
    else:
        packing = Packing.of(B, T, ends, reset, reverse, x.device)
        sizes = packing.sizes
        xi = xi if xi is None else packing.xi(xi, by_sequence=mode.by_sequence)
        if start is not None:
            start = packing.start(fresh, start)
        mask = mask if mask is None else mask[packing.row]

    record = Trace(cell if trace else None, x, packing, copies)
    call = Call(cell, weights, x, packing, sizes, widths, start, mask, xi, mode, record)
    record.backend = _choose(call, backend)
    outputs, final = BACKENDS[record.backend].run(call)

    if packing is None:
        outputs = outputs if outputs.dim() == 3 else outputs.view(T, B, -1).transpose(0, 1)
    else:
        outputs = packing.unpack(outputs)
        final = tuple(part[packing.last] for part in final)
    if copies > 1:
        outputs, final = _each_at_its_end(outputs, final, packing, copies)
    return Scanned(outputs, cell.state(final), record)


def _repeated(value: Tensor | None, copies: int) -> Any:
    """The rows of a batch, all of them so many times."""
    return value if value is None else value.repeat(copies, *[1] * (value.dim() - 1))


def _each_at_its_end(
    outputs: Tensor, final: Sequence[Tensor], packing: Packing | None, copies: int
) -> tuple[Tensor, Sequence[Tensor]]:
    """Sliding truncation: of every step, the copy of its row in which it ends a window of τ steps.

    All copies hold the same numbers; they differ in where the way back is cut.
    """
    B, T = outputs.shape[0] // copies, outputs.shape[1]
    if packing is None:
        position = torch.arange(T, device=outputs.device).expand(B, T)
        last = position[:, -1]
    else:
        position = packing.position[:B]
        last = packing.steps[packing.last[:B]] - 1
    of_step, of_row, row = (position + 1) % copies, (last + 1) % copies, torch.arange(B, device=outputs.device)
    by_copy = outputs.unflatten(0, (copies, B))
    chosen = by_copy[of_step, row[:, None], torch.arange(T, device=outputs.device)]
    return chosen, [part.unflatten(0, (copies, B))[of_row, row] for part in final]


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(dtype)
    if isinstance(value, Mapping):
        return {name: _cast(item, dtype) for name, item in value.items()}
    return tuple(_cast(item, dtype) for item in value) if isinstance(value, tuple | list) else value


def check_backend(backend: object) -> None:
    if backend not in ("auto", *BACKENDS):
        raise BackendError(unknown("backend", backend, ["auto", *BACKENDS]))


def _choose(call: Call, backend: str) -> str:
    if backend == "auto":
        return next(name for name, module in BACKENDS.items() if module.unsupported_reason(call) is None)
    check_backend(backend)
    reason = BACKENDS[backend].unsupported_reason(call)
    if reason is not None:
        raise BackendError(f"backend {backend!r} cannot run this: {reason}; take backend='auto' or 'loop'")
    return backend
