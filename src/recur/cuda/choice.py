"""Which way carries a scan: all that fit are listed, and the one that should be the fastest is taken.

The estimate is built of measured costs (an H200; docs/gpu.md): it orders ways, and a table of what was measured comes
before it where there is one.
"""

from __future__ import annotations

import dataclasses
import math

from recur.cuda.device import Device
from recur.cuda.way import ALONE, CLUSTER, GRID, WARPS, Problem, Way

SHARED_RATE = 200.0
"""Bytes of shared memory a nanosecond and multiprocessor."""
L2_RATE = 4500.0
"""Bytes a nanosecond from L2, all multiprocessors together."""
MMA_RATE = {2: 1900.0, 4: 950.0}
"""Multiply–adds a nanosecond and multiprocessor, by the bytes of a number."""
BARRIER, ELEMENT = 60.0, 90.0
"""Nanoseconds: of a CTA's barrier, and of a cell's step with its loads and stores."""
REGISTERS = 236
CHUNK_BYTES = 16 << 10
STEP_LAUNCHES = 14000.0
"""Nanoseconds that Python takes for one step's product and kernel."""


def candidates(p: Problem, device: Device) -> list[Way]:
    """All ways that fit on a device, the fastest first, as far as can be told."""
    found: dict[Way, float] = {}
    for units in (64, 32, 16, 8):
        if p.backward and units < 16:
            continue  # half of every product would be padding
        ctas = -(-p.H // units)
        if (units > 16 and units // 2 >= p.H) or ctas > device.multiprocessors:
            continue
        for exchange in _exchanges(ctas, device):
            for tiles in (1, 2, 3, 4, 6, 8, 12, 16):
                if tiles > 1 and 8 * (tiles - 1) >= p.S:
                    continue
                for warps_m in (1, 2, 4, 8):
                    for multicast in (1, 2, 4) if exchange == GRID and device.clusters else (1,):
                        shape = Way(exchange, units, tiles, -(-ctas // multicast) * multicast, warps_m, 0, 0, 1)
                        made = _fitted(p, device, dataclasses.replace(shape, multicast=multicast))
                        if made is not None:
                            found[made] = estimate(made, p)
    return sorted(found, key=lambda way: found[way])


def _exchanges(ctas: int, device: Device) -> list[int]:
    if ctas == 1:
        return [ALONE]
    return [CLUSTER, GRID] if ctas <= device.largest_cluster else [GRID]


def _fitted(p: Problem, device: Device, bare: Way) -> Way | None:
    """With as much of W in registers, then in shared memory, as there is room for."""
    resident = _resident(device, bare)
    if bare.warps_m > bare.m_tiles(p) or not resident:
        return None
    if bare.exchange == GRID and device.clusters:
        bare = _chunked(p, device, bare)
    each, room = bare.m_each(p), REGISTERS - bare.registers(p)
    left = device.shared - bare.shared_bytes(p)
    if room < 0 or left < 0:
        return None
    groups = bare.groups_each(p)
    in_registers = min(groups, room // (each * 8), 128 // (each * 8))
    in_shared = min(groups - in_registers, left // (each * 8192))
    wanted = math.ceil(p.S / bare.rows)
    teams = min(wanted, resident) if bare.exchange == GRID else wanted
    return dataclasses.replace(bare, in_registers=in_registers, in_shared=in_shared, teams=teams)


def _chunked(p: Problem, device: Device, way: Way) -> Way:
    """v in pieces of some 16 KB, at least four of them; all in memory at once, if that leaves room for W."""
    groups, k = way.groups(p), way.warps_k
    pieces = max(4, way.v_bytes(p) // CHUNK_BYTES)
    chunk = min(-(-groups // k) * k, max(k, -(-groups // pieces // k) * k))
    way = dataclasses.replace(way, chunk=chunk)
    budget = device.shared // 2 - way.part_bytes(p)
    return dataclasses.replace(way, ring=max(2, min(way.chunks(p), budget // way.chunk_bytes(p))))


def _resident(device: Device, way: Way) -> int:
    """How many teams can be on the chip at once."""
    if way.exchange == CLUSTER:  # which lies within one of the groups of 16 or 18 multiprocessors of a chip
        return max(1, (device.multiprocessors - 12) // way.ctas) if way.ctas <= device.largest_cluster else 0
    return (device.multiprocessors - (12 if way.multicast > 2 else 0)) // way.ctas


def estimate(way: Way, p: Problem) -> float:
    """Nanoseconds a step, about."""
    v, part, each = way.v_bytes(p), way.part_bytes(p), way.m_each(p)
    groups = way.groups_each(p)
    kept = min(way.in_registers, groups)
    in_shared = min(way.in_shared, groups - kept)
    shared = v * way.warps_m + 2 * part + in_shared * each * 8192
    teams = math.ceil(p.S / way.rows)
    at_once = min(teams, max(1, _at_once(way)))
    arithmetic = way.m_tiles(p) * 16 * way.rows * way.groups(p) * (64 // p.size) / MMA_RATE[p.size]
    arithmetic *= 3 if p.exact else 1
    streamed = way.streamed(p) * each * 1024 * WARPS * way.ctas * at_once / L2_RATE
    time = max(shared / SHARED_RATE, arithmetic) + streamed + 2 * BARRIER
    elements = -(-way.units * way.rows // 256)
    time += ELEMENT * (1 + 0.25 * (elements - 1)) * (1.5 if p.backward else 1)
    if way.exchange == CLUSTER:
        time += 230 + 0.027 * v
    elif way.exchange == GRID:
        time += 1350 + v * way.ctas * at_once / way.multicast / L2_RATE + 0.003 * v
    return time * math.ceil(teams / at_once)


def estimate_steps(p: Problem) -> float:
    """The same of one step a launch: a product by cuBLAS and a kernel, which Python launches."""
    operations = 2 * p.products * p.H * p.H * p.S
    rate = 40.0 if p.exact else {2: 450.0, 4: 220.0}[p.size]
    return max(STEP_LAUNCHES, 2500 + operations / rate / 1000)


def _at_once(way: Way) -> int:
    return way.teams if way.exchange == GRID else 120 // way.ctas


def ordered(p: Problem, device: Device) -> list[Way | None]:
    """All of them, one step a launch, which is None, at its place among them."""
    found = candidates(p, device)
    faster = [way for way in found if estimate(way, p) <= estimate_steps(p)]
    return [*faster, None]
