"""All steps of a scan in one launch: W stays on the chip. See kernels/persistent.cu."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn.functional import pad

from recur.cuda.arguments import Arguments
from recur.cuda.cache import compiled, loaded
from recur.cuda.device import device
from recur.cuda.driver import Launch, Prepared, current_stream
from recur.cuda.memory import Layout
from recur.cuda.operands import Operands, aligned, multiply, uses_tf32
from recur.cuda.results import Gradients, Results
from recur.cuda.source import source
from recur.cuda.steps import carry_back
from recur.cuda.way import CLUSTER, GRID, THREADS, Problem, Way, pressure, rounded_up

MOST_SPILLED = 128
"""Bytes: registers that lie in memory are read and written at every step."""


def problem(lay: Layout, backward: bool) -> Problem:
    exact = lay.of.dtype == torch.float32 and not uses_tf32()
    a = lay.assembly
    size = lay.of.dtype.itemsize
    return Problem(a.products, rounded_up(lay.S), lay.H, size, backward, exact, *pressure(a, backward))


def text(cell: str, dtype: torch.dtype, p: Problem, way: Way, variant: bool, delays: int = 0) -> str:
    """The kernel of a way. `variant`: for training, or traced."""
    options = (*way.options(p), ("TRACE" if p.backward else "TRAIN", int(variant)), ("DELAYS", delays))
    return source(cell, dtype, ("mma", "persistent", "exchange", _name(p)), options)


def _name(p: Problem) -> str:
    return "carry_backward" if p.backward else "carry_forward"


@functools.lru_cache(maxsize=1024)
def kernel(
    cell: str, dtype: torch.dtype, p: Problem, way: Way, index: int, variant: bool, delays: int = 0
) -> Prepared | None:
    """Compiled and ready; None where the GPU has no room for a team of it."""
    if way.shared_bytes(p) > device(index).shared:
        return None
    source_text, architecture = text(cell, dtype, p, way, variant, delays), device(index).architecture
    usage = compiled(source_text, architecture).usage.get(_name(p))
    if usage is not None and usage.stack > MOST_SPILLED:
        return None
    function = loaded(source_text, architecture, index).function(_name(p))
    cluster = way.ctas if way.exchange == CLUSTER else way.multicast
    how = Launch(way.teams * way.ctas, THREADS, way.shared_bytes(p), cluster, way.exchange == GRID)
    prepared = function.prepare(how)
    resident = prepared.resident()
    fits = resident >= how.grid if way.exchange == GRID else resident >= way.ctas
    return prepared if fits else None


def forward(ops: Operands, results: Results, train: bool, p: Problem, way: Way, run: Prepared) -> None:
    lay, a = ops.lay, ops.lay.assembly
    width, W = way.width(p), ops.W
    W = aligned(W) if width == lay.H else pad(W, (0, width - lay.H))
    offset, length = lay.order(W.device)
    exchange, arrived = _exchange(ops, p, way)
    arguments = Arguments(a, False, steps=lay.steps, S=lay.S, H=lay.H).put(
        offset=offset, length=length, share=results.share,
        tape=results.tape, state=results.states, final_state=results.finals, initial=ops.initial, bias=ops.bias_hh,
        input_bias=ops.bias_ih, extra=ops.extras, mask=ops.mask, W=W, exchange=exchange, arrived=arrived,
    )  # fmt: skip
    run(current_stream(W.device.index), arguments.struct)


def backward(
    ops: Operands, results: Results, found: Gradients, pieces: list[Tensor], p: Problem, way: Way, run: Prepared
) -> None:
    """`pieces`: where the gradients of W h will lie."""
    lay, a = ops.lay, ops.lay.assembly
    width = way.width(p)
    W = ops.W.view(a.products, lay.H, lay.H).permute(2, 0, 1)
    W = W.contiguous() if width == lay.H else pad(W, (0, width - lay.H))
    offset, length = lay.order(W.device)
    exchange, arrived = _exchange(ops, p, way)
    carry = [W.new_empty(lay.S, lay.H, dtype=lay.real) for _ in ops.initial]
    arguments = Arguments(a, True, steps=lay.steps, S=lay.S, H=lay.H).put(
        offset=offset, length=length, share=results.share,
        tape=results.tape, state=results.states, initial=ops.initial, extra=ops.extras, mask=ops.mask, W=W,
        d_outputs=found.d_outputs, d_final=found.d_final, xi=ops.xi, d_share=found.d_share, d_own=found.d_own,
        d_state=found.d_state, sums=found.sums, carry=carry, exchange=exchange, arrived=arrived,
    )  # fmt: skip
    run(current_stream(W.device.index), arguments.struct)
    if ops.initial:
        first = torch.cat([piece[: lay.S] for piece in pieces], dim=1)
        carry_back(ops, carry, multiply(first, ops.W, lay.real), lay.S, 0)
    found.carried = carry


def _exchange(ops: Operands, p: Problem, way: Way) -> tuple[Tensor | None, Tensor | None]:
    """Where v lies in L2, and the flags, zero at first."""
    if way.exchange != GRID:
        return None, None
    teams = -(-p.S // way.rows)
    words = teams * 2 * way.v_bytes(p) // 4
    memory = torch.zeros(words + teams * 32, dtype=torch.int32, device=ops.device)
    return memory[:words], memory[words:]
