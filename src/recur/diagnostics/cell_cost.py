"""The time and the memory of a cell beside the GRU's."""

from __future__ import annotations

import statistics
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.cells import Cell
from recur.diagnostics.cell_checks import network, units
from recur.nn import Recurrent

SECONDS = 0.5
"""For each size."""


class Measured(NamedTuple):
    """A call forward and back, D = H, of the cell and of a GRU taking turns: medians."""

    B: int
    T: int
    H: int
    backend: str
    seconds: float
    gru_seconds: float
    ratio: tuple[float, float]
    """Of the two: the middle half of the rounds lies between these."""
    bytes: int
    """What the forward pass keeps for the way back, beside inputs and weights."""
    gru_bytes: int


def measure(cell: Cell, B: int, T: int, H: int, seconds: float | None = None) -> Measured:
    H = units(cell, H)
    nets = [network(cell, H, H), Recurrent("gru", H, H)]
    x = torch.randn(B, T, H)
    kept = [kept_bytes(net, x) for net in nets]
    backend = nets[0](x).trace[0].backend
    times: list[list[float]] = [[], []]
    seconds, begun = SECONDS if seconds is None else seconds, time.perf_counter()
    while len(times[0]) < 5 or (time.perf_counter() - begun < seconds and len(times[0]) < 200):
        for net, spent in zip(nets, times, strict=True):
            at = time.perf_counter()
            net(x).outputs.sum().backward()
            spent.append(time.perf_counter() - at)
    ratios = statistics.quantiles([a / b for a, b in zip(*times, strict=True)], n=4)
    ours, theirs = map(statistics.median, times)
    return Measured(B, T, H, backend, ours, theirs, (ratios[0], ratios[2]), kept[0], kept[1])


def kept_bytes(net: Recurrent, x: Tensor) -> int:
    """The memory of all tensors that autograd saves in a call, each once, without inputs and weights."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (x, *net.parameters())}
    kept: dict[int, int] = {}
    alive: list[Any] = []  # an address is a tensor's own only while it lives

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive.append(net(x).outputs)
    return sum(kept.values())
