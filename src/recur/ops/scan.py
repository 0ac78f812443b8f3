"""scan: apply a cell along a batch of sequences, forward and backward.

A scan has four stages, one function each: normalise the arguments, pack the steps, choose a backend, run it. A call
that was prepared before (`call_cache`) goes straight to the operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recur.cells.cell import Cell, State, Weights, check_cell
from recur.compat import graph_break, is_jit_tracing, outside_transforms, tree_map
from recur.compiler.stage_tracing import staged
from recur.errors import BackendError
from recur.ops import call_cache
from recur.ops.backends import CUDA, NATIVE, Backend, choose_backend
from recur.ops.bptt import BPTT
from recur.ops.call import (
    GivenState,
    ScanCall,
    check_input,
    check_lengths,
    check_mask,
    check_matmul_dtype,
    check_reset,
    check_state,
    check_step_inputs,
    check_weights,
)
from recur.ops.noise import draw_noise
from recur.ops.packing import Packing
from recur.ops.trace import ScanOutput, Trace


def scan(
    cell: Cell,
    weights: Weights,
    x: Tensor,
    state: GivenState | None = None,
    *,
    initial: GivenState | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    reset: Tensor | None = None,
    reverse: bool = False,
    mask: Tensor | None = None,
    bptt: str | Tensor | BPTT = "full",
    trace: bool = False,
    backend: str = "auto",
    matmul_dtype: str = "",
    inputs: Mapping[str, Tensor] | None = None,
    seed: int | Tensor | None = None,
    first_step: int = 0,
) -> ScanOutput:
    """Apply a cell along a batch of sequences.

    x        (B, T, D)
    weights  by torch's names without the layer: weight_ih (G·H, D), weight_hh (G·H, H), bias_ih, bias_hh (G·H,), and
             the extra weights of the cell; `cell.shapes(D, H)` lists them. With weight_hr (P, H) every step projects
             its first state to P numbers, and weight_hh is (G·H, P)
    state    the states to start from, (B, H) each; `initial` by default
    initial  the start of a new sequence: (B, H) or (H,) each; zero by default, or the cell's own initial values
    lengths  (B,): row b ends after lengths[b] steps; a row of 0 steps returns the state it starts from
    reset    (B, T), bool: a new sequence starts at this step
    reverse  scan each sequence from its last step to its first; outputs stay at the positions of their inputs
    mask     (B, H): multiplies the state that W multiplies, the same at every step (recurrent dropout)
    bptt     which gradients cross time in the backward pass; see recur.ops.bptt
    trace    record ∂L/∂s_t and the terms of ∂L/∂W in the backward pass
    backend  native, cuda, parallel, torch, loop, or auto (the first that can run the call). A backend requested by name
             runs or raises
    matmul_dtype
             the dtype of matrix products, if not that of x: bfloat16 (both factors rounded, sums in float32, gradients
             too; the native backend does so for bfloat16 tensors and under autocast), or int8, for inference only:
             8-bit weights with a scale per row, times 16-bit activations
    inputs   arguments of each step by name, (B, T) or (B, T, H), for a cell that declares `inputs`; 1 if not given
    seed     draws the noise of a cell that declares some; without a seed noise is its mean
    first_step
             the number of steps before this call, on which noise depends

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
    mode, signature = BPTT.parse(bptt), None
    simple = lengths is None and reset is None and mask is None and initial is None and inputs is None
    if simple and not (reverse or trace or matmul_dtype) and backend in ("auto", "native", "cuda"):
        signature = call_cache.call_signature(weights, x, state, mode, backend)
        prepared = None if signature is None else call_cache.find(cell, signature)
        if prepared is not None:
            return ScanOutput(*call_cache.run_prepared(prepared, cell, weights, x, state, mode))

    if isinstance(x, Tensor) and not x.is_nested and x.dim() == 3 and not x.shape[0]:
        options = {"initial": initial, "lengths": lengths, "reset": reset, "mask": mask}
        rest = {"reverse": reverse, "bptt": bptt, "trace": trace, "backend": backend, "matmul_dtype": matmul_dtype}
        return _scan_no_rows(cell, weights, x, state, options, rest)
    given = _normalise(cell, weights, x, state, initial, lengths, reset, mask, mode, matmul_dtype, inputs)
    given.training = seed is not None
    if cell.noise:
        given.noise = draw_noise(cell, seed, given.x, given.widths[-1], first_step)
    if given.lengths is not None and not given.lengths.all():
        empty = (given.lengths == 0).to(x.device)
        found = scan(
            cell, weights, x.masked_fill(empty[:, None, None], 0), state, initial=initial,
            lengths=given.lengths.clamp_min(1), reset=reset, reverse=reverse, mask=mask, bptt=bptt, trace=trace,
            backend=backend, matmul_dtype=matmul_dtype, inputs=inputs, seed=seed, first_step=first_step,
        )  # fmt: skip
        return _restore_empty(found, given, empty)
    call = _pack(given, reverse, trace)
    chosen = choose_backend(call, backend)
    if signature is not None and (chosen is NATIVE or chosen is CUDA) and not staged(cell):
        call_cache.store(signature, call, chosen)
    return _run(call, chosen)


def _scan_no_rows(
    cell: Cell, weights: Weights, x: Tensor, state: Any, options: dict[str, Any], rest: dict[str, Any]
) -> ScanOutput:
    """Scan a batch of no rows: one row of zeros, which is removed, so that all gradients exist and are zero."""
    if state is not None:
        check_state(cell, "state", state, 0, check_weights(cell, weights, x), x)

    def one_row(part: Any) -> Any:
        return torch.cat([part, part.new_zeros(1, *part.shape[1:])]) if part.dim() and not len(part) else part

    given = {name: tree_map(lambda t: one_row(t) if isinstance(t, Tensor) else t, v) for name, v in options.items()}
    if options["lengths"] is not None:
        given["lengths"] = [1]
    state = tree_map(lambda t: one_row(t) if isinstance(t, Tensor) else t, state)
    found = scan(cell, weights, one_row(x), state, **given, **rest)
    return ScanOutput(found.outputs[:0], cell.state([part[:0] for part in found.state]), found.trace)


def _restore_empty(found: ScanOutput, given: _Arguments, empty: Tensor) -> ScanOutput:
    """Return results of a scan that gave empty rows one step: zero outputs, and the state that they start from."""
    start = given.start if given.start is not None else given.cell.start(given.x, len(empty), given.widths)
    state = [
        torch.where(empty[:, None], before.to(part.dtype), part)
        for before, part in zip(start, found.state, strict=True)
    ]
    return ScanOutput(found.outputs.masked_fill(empty[:, None, None], 0), given.cell.state(state), found.trace)


@dataclass
class _Arguments:
    """Checked arguments of a scan, of the dtype that it computes in."""

    cell: Cell
    weights: Weights
    x: Tensor
    widths: tuple[int, ...]
    start: State | None
    """The states to start from; None is zero."""
    fresh: State | None
    """The start of a new sequence; None is zero."""
    lengths: Tensor | None
    reset: Tensor | None
    mask: Tensor | None
    mode: BPTT
    dtype: torch.dtype
    """The dtype of the results."""
    autocast: bool
    matmul_dtype: str
    inputs: dict[str, Tensor]
    """(B, T, size) each."""
    noise: dict[str, Tensor] = field(default_factory=dict)
    """(B, T, H) each."""
    training: bool = False


def _normalise(
    cell: Cell,
    weights: Weights,
    x: Tensor,
    state: GivenState | None,
    initial: GivenState | None,
    lengths: Tensor | Sequence[int] | None,
    reset: Tensor | None,
    mask: Tensor | None,
    mode: BPTT,
    matmul_dtype: str,
    inputs: Mapping[str, Tensor] | None,
) -> _Arguments:
    """Stage 1: check all arguments, apply autocast, and complete the states to start from."""
    if is_jit_tracing():
        raise BackendError(
            "torch.jit.trace cannot record a scan, whose length it would fix; use torch.export.export, `recur export`, "
            "or recur.nn.LSTM, GRU or RNN, which it records as the layers of torch.nn"
        )
    check_matmul_dtype(matmul_dtype)
    B, T, _ = check_input(cell, x)
    kind, dtype = x.device.type, x.dtype
    autocast = dtype != torch.float64 and _is_autocast(kind)
    if autocast:
        # The whole scan has one dtype, as torch.nn casts whole layers: a state keeps its dtype from step to step. Until
        # a backend is chosen all tensors are float32, in which it may compute. Like torch, float64 is not cast.
        dtype = torch.get_autocast_dtype(kind)
        given = (weights, x, state, initial, mask, inputs)
        weights, x, state, initial, mask, inputs = (_cast(value, torch.float32) for value in given)
    widths = check_weights(cell, weights, x)
    own = check_step_inputs(cell, inputs, x, widths[-1]) if inputs or cell.call_inputs else {}
    if mask is not None:
        check_mask(cell, mask, B, widths[0], x)
    ends = None
    if lengths is not None or reset is not None:
        if torch.compiler.is_dynamo_compiling():
            graph_break("lengths and resets decide the shapes inside a scan: compile it without fullgraph=True")
        with outside_transforms():
            ends = check_lengths(cell, lengths, B, T)
            reset = check_reset(cell, reset, B, T)
    fresh = None
    if initial is not None:
        fresh = check_state(cell, "initial", initial, B, widths, x)
    elif cell.initial:
        fresh = cell.start(x, B, widths)
    start = fresh if state is None else check_state(cell, "state", state, B, widths, x)
    return _Arguments(
        cell, weights, x, widths, start, fresh, ends, reset, mask, mode, dtype, autocast, matmul_dtype, own
    )


def _pack(given: _Arguments, reverse: bool, trace: bool) -> ScanCall:
    """Stage 2: decide which steps follow each other, and draw ξ."""
    x, mask, start, fresh, ends, reset, mode = (
        given.x, given.mask, given.start, given.fresh, given.lengths, given.reset, given.mode,
    )  # fmt: skip
    B, T, _ = x.shape
    of_steps = [*given.inputs.values(), *given.noise.values()]
    copies = mode.copies(T) if torch.is_grad_enabled() else 1
    if copies > 1:
        of_steps = [_repeated(value, copies) for value in of_steps]
        B, x, ends, reset, mask = B * copies, *(_repeated(value, copies) for value in (x, ends, reset, mask))
        fresh, start = (parts and tuple(_repeated(part, copies) for part in parts) for parts in (fresh, start))
    xi = packing = None
    if ends is not None or reset is not None or not mode.full:
        with outside_transforms():
            xi = mode.draw(B, T, copies)
            if ends is not None or reset is not None:
                packing = Packing.of(B, T, ends, reset, reverse, x.device)
                xi = xi if xi is None else packing.xi(xi, by_sequence=mode.by_sequence)
            elif xi is not None:
                xi = xi.t().reshape(-1)
    flipped = reverse and packing is None
    if packing is not None:
        start = start if start is None else packing.start(fresh, start)
        mask = mask if mask is None else mask[packing.row]
    record = Trace(given.cell if trace else None, x, packing, copies, flipped)
    x = x.flip(1) if flipped else x
    of_steps = [packing.pack(part) if packing is not None else _by_step(part, flipped) for part in of_steps]
    return ScanCall(
        given.cell, given.weights, x, packing, given.widths, start, mask, xi, mode, given.dtype, record,
        given.matmul_dtype, given.autocast, flipped, copies, tuple(of_steps), given.training,
    )  # fmt: skip


def _by_step(part: Tensor, flipped: bool) -> Tensor:
    """Lay (B, T, size) out step by step, (T · B, size)."""
    return (part.flip(1) if flipped else part).transpose(0, 1).reshape(-1, part.shape[-1])


def _run(call: ScanCall, backend: Backend) -> ScanOutput:
    """Stage 4, after the choice of a backend: run it, and lay its results out as (B, T, H) and (B, H)."""
    packing, dtype, (B, T, _) = call.packing, call.dtype, call.x.shape
    inside = backend.computes_in(dtype)
    if call.autocast:
        with torch.autocast(call.x.device.type, enabled=False):
            outputs, final = backend.run(call.to(inside))
    else:
        outputs, final = backend.run(call if inside == dtype else call.to(inside))
    if inside != dtype:
        outputs, final = outputs.to(dtype), tuple(part.to(dtype) for part in final)
    if packing is None:
        outputs = outputs if outputs.dim() == 3 else outputs.view(T, B, -1).transpose(0, 1)
        outputs = outputs.flip(1) if call.flipped else outputs
    else:
        outputs = packing.unpack(outputs)
        final = tuple(part[packing.last] for part in final)
    if call.copies > 1:
        outputs, final = _select_copies(outputs, final, call)
    return ScanOutput(outputs, call.cell.state(final), call.trace)


def _repeated(value: Tensor | None, copies: int) -> Any:
    """Repeat the whole batch."""
    return value if value is None else value.repeat(copies, *[1] * (value.dim() - 1))


def _select_copies(outputs: Tensor, final: Sequence[Tensor], call: ScanCall) -> tuple[Tensor, Sequence[Tensor]]:
    """Sliding truncation: for every step, take the copy of its row in which the step ends a window of τ steps.

    All copies hold the same numbers; they differ in where the backward pass is truncated.
    """
    copies, packing = call.copies, call.packing
    B, T = outputs.shape[0] // copies, outputs.shape[1]
    if packing is None:
        position = torch.arange(T, device=outputs.device).expand(B, T)
        last = position[:, -1]
        position = position.flip(1) if call.flipped else position
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
    """Cast the floating-point tensors of a tensor, mapping or sequence."""
    value = dict(value) if isinstance(value, Mapping) else value
    return tree_map(lambda t: t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t, value)
