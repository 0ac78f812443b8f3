"""All steps of a scan in one launch: W stays on the chip. See kernels/persistent.cu."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn.functional import pad

from recur.cuda.arguments import filled
from recur.cuda.cache import loaded
from recur.cuda.device import device
from recur.cuda.driver import Launch, Prepared
from recur.cuda.memory import Layout, order
from recur.cuda.operands import Operands, multiply, uses_tf32
from recur.cuda.results import Gradients, Results
from recur.cuda.source import source
from recur.cuda.steps import carry_back
from recur.cuda.way import CLUSTER, GRID, THREADS, Problem, Way, pressure


MOST_SPILLED = 128
"""Bytes: registers that lie in memory are read and written at every step."""


def unsupported_reason(lay: Layout) -> str | None:
    """Why steps of this scan cannot be carried in one launch, whatever fits on the GPU."""
    if not lay.assembly.products:
        return "the cell has no product with W"
    if lay.of.dtype == torch.float64:
        return "float64 has no way of its own"
    if lay.P:
        return "a projected state takes two exchanges a step"
    if lay.of.clip:
        return "clip needs the norm of a whole row at every step"
    return None


def problem(lay: Layout, backward: bool) -> Problem:
    exact = lay.of.dtype == torch.float32 and not uses_tf32()
    a = lay.assembly
    size = lay.of.dtype.itemsize
    return Problem(a.products, lay.S, lay.steps, lay.H, size, backward, exact, pressure(a, backward))


@functools.lru_cache(maxsize=1024)
def kernel(
    cell: str, dtype: torch.dtype, p: Problem, way: Way, index: int, variant: bool, delays: int = 0
) -> Prepared | None:
    """Compiled and ready; None where the GPU has no room for a team of it. `variant`: for training, or traced."""
    name = "carry_backward" if p.backward else "carry_forward"
    options = (*way.options(p), ("TRACE" if p.backward else "TRAIN", int(variant)), ("DELAYS", delays))
    text = source(cell, dtype, ("persistent", name), options)
    module, usage = loaded(text, device(index).architecture, index)
    if usage[name].spilled > MOST_SPILLED:
        return None
    cluster = way.ctas if way.exchange == CLUSTER else 1
    how = Launch(way.teams * way.ctas, THREADS, way.shared_bytes(p), cluster, way.exchange == GRID)
    prepared = module.function(name).prepare(how)
    resident = prepared.resident()
    fits = resident >= how.grid if way.exchange == GRID else resident >= way.ctas
    return prepared if fits else None


def forward(ops: Operands, results: Results, train: bool, p: Problem, way: Way, run: Prepared) -> None:
    lay, a = ops.lay, ops.lay.assembly
    width, W = way.width(p), ops.W
    W = W.contiguous() if width == lay.H else pad(W, (0, width - lay.H))
    offset, length = _order(lay, W.device)
    exchange, arrived = _exchange(ops, p, way)
    arguments = filled(
        a, False, steps=lay.steps, S=lay.S, H=lay.H, offset=offset, length=length, share=results.share,
        tape=results.tape, state=results.states, final_state=results.finals, initial=ops.initial, bias=ops.bias_hh,
        extra=ops.extras, mask=ops.mask, W=W, exchange=exchange, arrived=arrived,
    )  # fmt: skip
    run(torch.cuda.current_stream().cuda_stream, arguments)


def backward(
    ops: Operands, results: Results, found: Gradients, pieces: list[Tensor], p: Problem, way: Way, run: Prepared
) -> None:
    """`pieces`: where the gradients of W h will lie."""
    lay, a = ops.lay, ops.lay.assembly
    width = way.width(p)
    W = ops.W.new_zeros(lay.H, a.products, width) if width > lay.H else ops.W.new_empty(lay.H, a.products, width)
    W[:, :, : lay.H] = ops.W.view(a.products, lay.H, lay.H).permute(2, 0, 1)
    offset, length = _order(lay, W.device)
    exchange, arrived = _exchange(ops, p, way)
    carry = [W.new_empty(lay.S, lay.H, dtype=lay.real) for _ in range(a.states)]
    arguments = filled(
        a, True, steps=lay.steps, S=lay.S, H=lay.H, offset=offset, length=length, share=results.share,
        tape=results.tape, state=results.states, initial=ops.initial, extra=ops.extras, mask=ops.mask, W=W,
        d_outputs=found.d_outputs, d_final=found.d_final, xi=ops.xi, d_share=found.d_share, d_own=found.d_own,
        d_state=found.d_state, sums=found.sums, carry=carry, exchange=exchange, arrived=arrived,
    )  # fmt: skip
    run(torch.cuda.current_stream().cuda_stream, arguments)
    if ops.initial:
        first = torch.cat([piece[: lay.S] for piece in pieces], dim=1)
        carry_back(ops, carry, multiply(first, ops.W, lay.real), lay.S, 0)
    found.carried = carry


def _order(lay: Layout, on: torch.device) -> tuple[Tensor | None, Tensor | None]:
    if lay.uniform:
        return None, None
    assert lay.sizes is not None
    offset, length, _ = order(lay.sizes, on)
    return offset, length


def _exchange(ops: Operands, p: Problem, way: Way) -> tuple[Tensor | None, Tensor | None]:
    """Where v lies in L2, and the flags, zero at first."""
    if way.exchange != GRID:
        return None, None
    teams = -(-p.S // way.rows)
    words = teams * 2 * way.v_bytes(p) // 4
    memory = ops.data.new_empty(words + teams * 32, dtype=torch.int32).zero_()
    return memory[:words], memory[words:]
