"""All steps of a scan in one launch: W stays on the chip. See kernels/persistent.cu."""

from __future__ import annotations

import functools

import torch

from recur.cuda.cache import compiled, loaded
from recur.cuda.device import device
from recur.cuda.driver import Launch, Prepared
from recur.cuda.memory import Layout
from recur.cuda.operands import uses_tf32
from recur.cuda.source import source
from recur.cuda.way import CLUSTER, GRID, THREADS, Problem, Way, pressure, rounded_up

MOST_SPILLED = 128
"""Bytes: registers that lie in memory are read and written at every step."""


def problem(lay: Layout, backward: bool, directions: int = 1) -> Problem:
    exact = lay.of.dtype == torch.float32 and not uses_tf32()
    a = lay.assembly
    size = lay.of.dtype.itemsize
    return Problem(a.products, rounded_up(lay.S), lay.H, size, backward, exact, *pressure(a, backward), directions)


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
    how = Launch(p.directions * way.teams * way.ctas, THREADS, way.shared_bytes(p), cluster, way.exchange == GRID)
    prepared = function.prepare(how)
    resident = prepared.resident()
    fits = resident >= how.grid if way.exchange == GRID else resident >= way.ctas
    return prepared if fits else None
