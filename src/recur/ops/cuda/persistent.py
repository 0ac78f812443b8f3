"""All steps of a scan in one launch: W stays on the chip. See kernels/persistent.cu."""

from __future__ import annotations

import functools

import torch

from recur.ops.cuda.cache import compiled, loaded
from recur.ops.cuda.device import Device, device
from recur.ops.cuda.driver import Launch, Prepared
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.operands import uses_tf32
from recur.ops.cuda.source import source
from recur.ops.cuda.way import CLUSTER, GRID, Problem, Way, pressure, rounded_up

MOST_SPILLED = 128
"""Bytes: registers that lie in memory are read and written at every step."""
TRIES = 3
"""How often a kernel is compiled with fewer of them."""


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
def fitted(
    cell: str, dtype: torch.dtype, p: Problem, way: Way, here: Device, variant: bool, delays: int = 0
) -> Way | None:
    """The way as it is compiled without registers in memory: with less of W in them, if they were too many; None if
    that does not help."""
    for _ in range(TRIES):
        if way.shared_bytes(p) > here.shared:
            return None
        usage = compiled(text(cell, dtype, p, way, variant, delays), here.architecture).usage.get(_name(p))
        if usage is None or usage.stack <= MOST_SPILLED:
            return way
        lighter = relieved(p, way, usage.stack // 4, here)
        if lighter is None:
            return None
        way = lighter
    return None


def relieved(p: Problem, way: Way, registers: int, here: Device) -> Way | None:
    """So many registers free of W, what they held in shared memory as far as there is room, or from L2 at every step;
    None where W does not take so many."""
    group = way.group_registers(p)
    fewer = way.but(in_registers=min(way.in_registers, way.groups_each(p)) - -(-registers // group), in_shared=0)
    if fewer.in_registers < 0:
        return None
    room = (here.shared - fewer.shared_bytes(p)) // (way.m_each(p) * 32 * way.threads)
    return fewer.but(in_shared=min(fewer.groups_each(p) - fewer.in_registers, room))


@functools.lru_cache(maxsize=1024)
def kernel(
    cell: str, dtype: torch.dtype, p: Problem, way: Way, index: int, variant: bool, delays: int = 0
) -> tuple[Way, Prepared] | None:
    """Compiled and ready, and the way as it fits; None where the GPU has no room for a team of it."""
    own = fitted(cell, dtype, p, way, device(index), variant, delays)
    if own is None:
        return None
    function = loaded(text(cell, dtype, p, own, variant, delays), device(index).architecture, index).function(_name(p))
    cluster = own.ctas if own.exchange == CLUSTER else own.multicast
    how = Launch(p.directions * own.teams * own.ctas, own.threads, own.shared_bytes(p), cluster, own.exchange == GRID)
    prepared = function.prepare(how)
    resident = prepared.resident()
    fits = resident >= how.grid if own.exchange == GRID else resident >= own.ctas
    return (own, prepared) if fits else None
