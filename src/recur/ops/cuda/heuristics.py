"""Choice of a kernel configuration by an estimate of its time.

The estimate is a sum of measured costs (H200, docs/notes/2026-11-gpu-kernels.md). It ranks configurations; a tuning
table comes first where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from recur.ops.cuda.config import CLUSTER, GRID, SINGLE_CTA, KernelConfig, ScanShape
from recur.ops.cuda.driver import DeviceInfo

COSTS = {
    "cluster": 0.0,
    "grid": 1951.0,
    "shared byte": 0.0,
    "product of 16 bits": 21.1,
    "product of 32 bits": 20.6,
    "streamed byte": 1.34e-05,
    "streamed group": 191.0,
    "element": 0.0,
    "element back": 285.0,
    "byte to a cluster": 0.0344,
    "CTA of a cluster": 0.0,
    "byte through L2": 0.00802,
    "byte from L2": 9.24e-06,
    "CTA of a grid": 0.417,
    "chunk": 203.0,
    "fetched by two": 297.0,
    "fetched by four": 2701.0,
    "partial sums": 300.0,
}
"""Nanoseconds per step: non-negative least squares on 820 measured configurations of LSTM, GRU and Elman networks on an
H200. The cost of partial sums is the value that chose best among 469 further measurements.
"""
MAX_REGISTERS = {8: 236, 16: 116}
"""Registers of a thread, by the number of warps of a CTA."""
STEP_LAUNCH_NS = 14000.0
"""Nanoseconds to launch the matmul and the kernel of one step."""


def list_configs(p: ScanShape, device: DeviceInfo) -> list[KernelConfig]:
    """Return all configurations that fit on a device, the fastest by estimate first."""
    found: dict[KernelConfig, float] = {}
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
                config = KernelConfig(exchange, units, tiles, ctas, 1, 0, 0, 1)
                for used in _rows_per_team(config, p, device):
                    for shape, pieces in _warp_shapes(config.with_changes(used=used), p, device):
                        made = _fit_weights(p, device, shape, pieces)
                        if made is not None:
                            found[made] = estimate_persistent(made, p)
    return sorted(found, key=lambda config: (found[config], config.warps))


def _rows_per_team(config: KernelConfig, p: ScanShape, device: DeviceInfo) -> list[int]:
    """Return candidates for the rows of a team: all rows of a tile, or so few that clusters fill the GPU."""
    resident = _resident_teams(device, config) // p.directions
    if config.exchange != CLUSTER or not resident or math.ceil(p.S / config.rows) > resident:
        return [0]
    whole = max(2, 32 // config.units)  # rows that warps send together
    used = math.ceil(p.S / resident / whole) * whole
    return [0, used] if used < min(config.rows, p.S) else [0]


def _warp_shapes(config: KernelConfig, p: ScanShape, device: DeviceInfo) -> Iterator[tuple[KernelConfig, int]]:
    """Yield configurations by how warps divide the matmul, with the number of chunks of v."""
    for warps in MAX_REGISTERS:
        for warps_m in (1, 2, 4, 8, 16):
            if warps_m > warps:
                continue
            for multicast, pieces in _fetches(config.exchange, device):
                ctas = -(-config.ctas // multicast) * multicast
                yield config.with_changes(warps=warps, warps_m=warps_m, multicast=multicast, ctas=ctas), pieces
        if p.backward and config.exchange == CLUSTER:
            yield config.with_changes(warps=warps, warps_m=warps, partial=1), 1


def _exchanges(ctas: int, device: DeviceInfo) -> list[int]:
    if ctas == 1:
        return [SINGLE_CTA]
    return [CLUSTER, GRID] if ctas <= device.largest_cluster else [GRID]


def _fetches(exchange: int, device: DeviceInfo) -> list[tuple[int, int]]:
    """Return pairs of the number of CTAs that fetch v together and the number of chunks."""
    if exchange != GRID or not device.clusters:
        return [(1, 1)]
    return [(1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8), (4, 8)]


def _fit_weights(p: ScanShape, device: DeviceInfo, bare: KernelConfig, pieces: int) -> KernelConfig | None:
    """Keep as much of W as possible in registers, then in shared memory; None if the configuration does not fit."""
    resident = _resident_teams(device, bare)
    if (bare.warps_m > bare.m_tiles(p) and not bare.partial) or not resident:
        return None
    if pieces > 1:
        bare = _split_exchange(p, device, bare, pieces)
    each, room = bare.m_each(p), MAX_REGISTERS[bare.warps] - bare.registers(p)
    left = device.shared - bare.shared_bytes(p)
    if room < 0 or left < 0:
        return None
    groups = bare.groups_each(p)
    group = bare.group_registers(p)
    in_registers = min(groups, room // group, 128 // group)
    in_shared = min(groups - in_registers, left // (each * 32 * bare.threads))
    wanted = math.ceil(p.S / bare.own_rows)
    teams = min(wanted, resident // p.directions) if bare.exchange == GRID else wanted
    if not teams:
        return None
    return bare.with_changes(in_registers=in_registers, in_shared=in_shared, teams=teams)


def _split_exchange(p: ScanShape, device: DeviceInfo, config: KernelConfig, pieces: int) -> KernelConfig:
    """Split v into chunks, with as many buffers as leave room for W."""
    groups, k = config.groups(p), config.warps_k
    config = config.with_changes(chunk=max(k, -(-groups // pieces // k) * k))
    budget = device.shared // 2 - config.part_bytes(p)
    return config.with_changes(ring=max(2, min(config.chunks(p), budget // config.chunk_bytes(p))))


def _resident_teams(device: DeviceInfo, config: KernelConfig) -> int:
    """Return the number of teams that fit on the GPU at once."""
    if config.exchange == CLUSTER:  # a cluster must fit into one group of 16 or 18 multiprocessors
        return max(1, (device.multiprocessors - 12) // config.ctas) if config.ctas <= device.largest_cluster else 0
    return (device.multiprocessors - (12 if config.multicast > 2 else 0)) // config.ctas


def cost_terms(config: KernelConfig, p: ScanShape) -> dict[str, float]:
    """Return the amount of each cost term in a step, for one turn of a team."""
    v, each, groups = config.v_bytes(p), config.m_each(p), config.groups_each(p)
    products = groups * 2 * each * config.tiles * (3 if p.exact else 1)
    share = config.warps / 8  # with 16 warps, two share a scheduler slot
    at_once = config.ctas * min(p.directions * math.ceil(p.S / config.own_rows), _concurrent_teams(config, p))
    cluster, grid = config.exchange == CLUSTER, config.exchange == GRID
    return {
        "cluster": cluster,
        "grid": grid,
        "shared byte": v * config.warps_m + 2 * config.part_bytes(p),
        "product of 16 bits": products * share if p.size == 2 else 0,
        "product of 32 bits": products * share if p.size == 4 else 0,
        "streamed byte": config.streamed(p) * each * 1024 * config.warps * at_once,
        "streamed group": config.streamed(p) * each * share,
        "element": 0 if p.backward else config.elements * share,
        "element back": config.elements * share if p.backward else 0,
        "byte to a cluster": (config.mail_bytes() if config.partial else v) * cluster * config.own_rows / config.rows,
        "CTA of a cluster": config.ctas * cluster,
        "byte through L2": v * grid,
        "byte from L2": v * at_once / config.multicast * grid,
        "CTA of a grid": at_once * grid,
        "chunk": config.chunks(p) * grid,
        "fetched by two": config.multicast == 2,
        "fetched by four": config.multicast == 4,
        "partial sums": config.partial,
    }


def count_turns(config: KernelConfig, p: ScanShape) -> int:
    """Return the number of turns that teams need for the batch."""
    return math.ceil(p.directions * math.ceil(p.S / config.own_rows) / _concurrent_teams(config, p))


def estimate_persistent(config: KernelConfig, p: ScanShape) -> float:
    """Estimate the nanoseconds per step of a persistent kernel."""
    return count_turns(config, p) * sum(COSTS[name] * amount for name, amount in cost_terms(config, p).items())


def estimate_per_step(p: ScanShape) -> float:
    """Estimate the nanoseconds per step of one launch per step: a cuBLAS matmul and a kernel."""
    operations = 2 * p.products * p.H * p.H * p.S
    rate = 40.0 if p.exact else {2: 140.0, 4: 85.0}[p.size]
    return max(STEP_LAUNCH_NS, 2500 + operations / rate / 1000)


def _concurrent_teams(config: KernelConfig, p: ScanShape) -> int:
    return p.directions * config.teams if config.exchange == GRID else max(1, 120 // config.ctas)


def order_configs(
    p: ScanShape, device: DeviceInfo, measured: KernelConfig | None = None, by_steps: bool = False
) -> list[KernelConfig | None]:
    """Return all configurations in the order in which they are tried; None stands for one launch per step.

    Args:
        measured: the fastest measured configuration of an equal or similar scan; similar configurations come first.
        by_steps: one launch per step was measured to be the fastest.
    """
    found = list_configs(p, device)
    if by_steps:
        return [None]
    if measured is not None:
        # Stable: the faster ones stay first.
        found.sort(key=lambda config: (config != measured, _similarity_key(config, p) != _similarity_key(measured, p)))
        return [*found, None]
    faster = [config for config in found if estimate_persistent(config, p) <= estimate_per_step(p)]
    return [*faster, None]


def _similarity_key(config: KernelConfig, p: ScanShape) -> tuple[int, ...]:
    """Return what is equal in configurations that differ only in the width of the layer."""
    return (
        config.exchange, config.units, config.tiles, config.warps_m, config.multicast, config.chunks(p), config.partial,
        config.warps, config.used,
    )  # fmt: skip
