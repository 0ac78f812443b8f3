"""The operator on plain tensors: memory for the results of a scan, and a call of the C++ core to fill it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.native.call import Form, Loaded, NativeCall, load
from recur.program.assembly import Assembly

Tensors = list[Tensor]


class Options(NamedTuple):
    """What a scan is given beside its tensors, in the operator's order."""

    mask: Tensor | None
    xi: Tensor | None
    sizes: Sequence[int]
    batch_major: bool
    clip: float
    cell: str
    products: str = ""
    """What products read, if not the numbers as they are: bfloat16 or int8, of float32."""


def _contiguous(tensors: Sequence[Tensor]) -> Tensors:
    return [t.contiguous() for t in tensors]


def _steps(data: Tensor) -> int:
    """N of (N, D), or of (B, T, D) where it is batch-major."""
    return data.shape[0] if data.dim() == 2 else data.shape[0] * data.shape[1]


def _empty_share(data: Tensor, columns: int) -> Tensor:
    """A value of each gate and step. Rows 2 KiB apart would compete for the same sets of the cache: they are padded."""
    conflicts = columns * data.element_size() % 2048 == 0
    return data.new_empty(_steps(data), columns + (64 // data.element_size() if conflicts else 0))


def _empty_results(
    loaded: Loaded, data: Tensor, weights: Tensors, S: int, train: bool
) -> tuple[Tensors, Tensors, Tensor | None, Tensor | None, Tensors]:
    """Outputs, final states, and what is saved: in the gates' places, on the tape, and the other states' history."""
    a, projection = loaded.assembly, loaded.projection(weights)
    N, H = _steps(data), weights[0].shape[0] // a.gates
    share = _empty_share(data, a.gates * H) if train and a.reads_share else None
    tape = data.new_empty(N, a.saved * H) if train and a.saved else None
    first = projection or H
    outputs = [data.new_empty(*data.shape[:-1], H if j else first) for j in a.outputs]
    kept = a.states - (0 if projection else len(a.outputs))  # with a projection, what it is made of too
    others = [data.new_empty(N, H) for _ in range(kept)] if train else []
    return outputs, [data.new_empty(S, H if j else first) for j in range(a.states)], share, tape, others


def _histories(a: Assembly, outputs: Sequence[Tensor | None], others: Tensors, projected: bool) -> list[Tensor | None]:
    """What the programs return of every state, in their order; None where it is not kept."""
    rest, given = iter(others), [] if projected else a.outputs
    return [outputs[given.index(j)] if j in given else next(rest, None) for j in range(a.states)]


def _call(
    cell: str,
    program: str,
    data: Tensor,
    weights: Tensors,
    mask: Tensor | None,
    H: int,
    sizes: Sequence[int],
    batch_major: bool,
    clip: float = 0.0,
    padded_rows: int = 0,
    products: str = "",
) -> NativeCall:
    loaded = load(cell)
    N, D, double, biased = _steps(data), data.shape[-1], data.dtype == torch.float64, loaded.biased(len(weights))
    along_time = clip == 0 and takes_steps_at_once(cell, sizes[0], sizes[1] if batch_major else len(sizes))
    form = Form(
        cell, program, double, N, D, H, tuple(sizes), batch_major, biased, masked=mask is not None, clip=clip,
        padded_rows=padded_rows, along_time=along_time, products=products, projection=loaded.projection(weights),
    )  # fmt: skip
    return NativeCall(form, data, weights, mask)


MOST_SEGMENTS, LEAST_STEPS = 8, 16
"""Up to so many segments of so many steps, a program takes steps of one segment as its rows, where it can; more
segments are rows enough at every step. Measured: at 16 segments both ways take the same time."""


def takes_steps_at_once(cell: str, segments: int, steps: int) -> bool:
    """Whether the rows of a program are steps of one segment, for a cell that is affine in its states."""
    return segments <= MOST_SEGMENTS and steps >= LEAST_STEPS and bool(load(cell).assembly.along_time)


def forward(
    data: Tensor,
    weights: Tensors,
    extras: Tensors,
    state: Tensors,
    mask: Tensor | None,
    xi: Tensor | None,
    sizes: Sequence[int],
    batch_major: bool,
    clip: float,
    cell: str,
    products: str,
    train: bool,
    *,
    zero_padding: bool = True,
) -> Tensors:
    """`zero_padding` writes the columns that pad a saved tensor too: an operator returns nothing uninitialised."""
    loaded = load(cell)
    a = loaded.assembly
    data, weights, extras, state = data.contiguous(), _contiguous(weights), _contiguous(extras), _contiguous(state)
    mask = mask if mask is None else mask.contiguous()
    outputs, finals, share, tape, others = _empty_results(loaded, data, weights, sizes[0], train)
    H, program = weights[0].shape[0] // a.gates, "train" if train else "use"
    call = _call(cell, program, data, weights, mask, H, sizes, batch_major, products=products)
    written, projection = share, loaded.projection(weights)
    histories = _histories(a, outputs, others, projection > 0)
    first = data.new_empty(_steps(data), H) if histories[0] is None else histories[0]  # the core always keeps it
    histories[0] = first
    if written is None:
        written = first if loaded.share_in_outputs[program] else _empty_share(data, a.gates * H)
    elif zero_padding:
        written[:, a.gates * H :].zero_()
    projected = outputs[0] if projection else None
    call.put(share=written, share_stride=written.shape[-1], tape=tape, projected=projected)
    call.point(extra=extras, initial=state or [None] * a.states, state=histories, final_state=finals)
    call.run(backward=False)
    return [*outputs, *finals, *(part for part in (share, tape) if part is not None), *others]


def forward_shapes(data: Tensor, weights: Tensors, extras: Tensors, state: Tensors, *rest: Any) -> Tensors:
    _, _, sizes, _, _, cell, _, train = rest
    outputs, finals, share, tape, others = _empty_results(load(cell), data, weights, sizes[0], train)
    return [*outputs, *finals, *(part for part in (share, tape) if part is not None), *others]


def backward(
    gradients: Sequence[Tensor | None],
    data: Tensor,
    weights: Tensors,
    extras: Tensors,
    state: Tensors,
    mask: Tensor | None,
    xi: Tensor | None,
    outputs: Tensors,
    saved: Tensors,
    sizes: Sequence[int],
    batch_major: bool,
    clip: float,
    cell: str,
    products: str,
    for_data: bool,
    for_state: bool,
    traced: bool,
    *,
    overwrite_saved: bool = False,
) -> Tensors:
    """The gradients; with `traced` also what a trace records: the whole gradient of every state, and of U x and W h.

    `overwrite_saved` reuses the saved tensors' memory: there will be no further backward pass over this graph.
    """
    loaded = load(cell)
    a = loaded.assembly
    data, weights, extras, state = data.contiguous(), _contiguous(weights), _contiguous(extras), _contiguous(state)
    gradients = [g if g is None else g.contiguous() for g in gradients]
    mask = mask if mask is None else mask.contiguous()
    N, H, projection = _steps(data), weights[0].shape[0] // a.gates, loaded.projection(weights)
    padded_rows = sum(2**k for k, weight in enumerate(weights[:2]) if _pads_rows(weight))
    program = "trace" if traced else "back"
    call = _call(cell, program, data, weights, mask, H, sizes, batch_major, clip, padded_rows, products)
    rest = list(saved)
    share = rest.pop(0) if a.reads_share else None
    d_share = share if share is not None and overwrite_saved else _empty_share(data, a.gates * H)
    d_product = data.new_empty(N, a.own * H) if a.own else None
    tape = rest.pop(0) if a.saved else None
    d_data, d_weights, d_extras, d_initial = _empty_gradients(data, weights, extras, state, for_data, for_state)
    recorded = _empty_record(a, data, H) if traced else []
    d_projected = data.new_empty(N, projection) if projection else None
    call.put(
        xi=xi, share=share, share_stride=d_share.shape[1], tape=tape, d_share=d_share, d_product=d_product,
        projected=outputs[0] if projection else None, d_projected=d_projected, d_data=d_data if for_data else None,
    )  # fmt: skip
    for place, weight in zip(call.gradients, d_weights, strict=True):
        call.words[place] = weight.data_ptr()
    call.point(
        extra=extras, initial=state or [None] * a.states, state=_histories(a, outputs, rest, projection > 0),
        d_outputs=_histories(a, gradients[: len(a.outputs)], [], False), d_final=gradients[len(a.outputs) :],
        d_extra=d_extras, d_initial=d_initial if for_state else [], d_state=recorded[: a.states],
    )  # fmt: skip
    call.run(backward=True)
    if traced:
        if d_projected is not None:
            recorded[0] = d_projected
        recorded[a.states].copy_(d_share[:, : a.gates * H])
        for block, place in zip(recorded[-1].split(H, dim=1), a.product_places, strict=a.products > 0):
            side, at = (d_share, place) if place < a.gates or d_product is None else (d_product, place - a.gates)
            block.copy_(side[:, at * H : (at + 1) * H])
    return [d_data, *d_weights, *d_extras, *d_initial, *recorded]


def _empty_gradients(
    data: Tensor, weights: Tensors, extras: Tensors, state: Tensors, for_data: bool, for_state: bool
) -> tuple[Tensor, Tensors, Tensors, Tensors]:
    """Memory for the gradients; none for those that are not asked for."""
    d_data = torch.empty_like(data) if for_data else data.new_empty(0)
    d_extras = [torch.empty_like(extra) for extra in extras]
    d_initial = [part.new_empty(part.shape if for_state else 0) for part in state]
    return d_data, [_empty_gradient(w) for w in weights], d_extras, d_initial


def _empty_record(a: Assembly, data: Tensor, H: int) -> Tensors:
    """Memory for what a trace records: of every state, then of all gates' input shares, then of all products."""
    return [data.new_empty(_steps(data), blocks * H) for blocks in (*[1] * a.states, a.gates, a.products)]


def _pads_rows(weight: Tensor) -> bool:
    """Whether a few columns more would make its rows whole panels, of which the widest have 32 columns."""
    columns = weight.shape[-1]
    return columns >= 256 and columns % 32 != 0 and weight.dim() == 2


def _empty_gradient(weight: Tensor) -> Tensor:
    """Memory for a weight's gradient, enough for padded rows: until it is written, the packed weight lies there."""
    if not _pads_rows(weight):
        return torch.empty_like(weight)
    rows, columns = weight.shape
    return weight.new_empty(rows * (columns + -columns % 32))[: rows * columns].view(rows, columns)


def backward_shapes(
    gradients: Sequence[Tensor | None], data: Tensor, weights: Tensors, extras: Tensors, state: Tensors, *rest: Any
) -> Tensors:
    *_, cell, _, for_data, for_state, traced = rest
    d_data, d_weights, d_extras, d_initial = _empty_gradients(data, weights, extras, state, for_data, for_state)
    a, projection = load(cell).assembly, load(cell).projection(weights)
    recorded = _empty_record(a, data, weights[0].shape[0] // a.gates) if traced else []
    if traced and projection:
        recorded[0] = data.new_empty(_steps(data), projection)
    return [d_data, *d_weights, *d_extras, *d_initial, *recorded]
