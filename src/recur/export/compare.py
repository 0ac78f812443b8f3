"""What was written, run beside the model it was written from, before it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from recur.errors import RecurError
from recur.export.graphs import Graph, example

SIZES = (
    {"B": 1, "T": 1, "S": 1, "N": 1},
    {"B": 3, "T": 1, "S": 2, "N": 5},
    {"B": 1, "T": 13, "S": 7, "N": 1},
    {"B": 5, "T": 4, "S": 3, "N": 2},
)
"""Rows, steps, symbols of a source and others: one, odd, and both."""

TOLERANCE = 1e-4
"""Rounding of float32 over a few steps is a hundredth of it, and a wrong sign a thousand times as much."""


Run: TypeAlias = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""A graph, whatever runs it."""


def largest_difference(graph: Graph, run: Run, positive: bool = False) -> float:
    """Between what a graph gives in PyTorch and what `run` makes of the same inputs, at four shapes; of numbers above 1
    the share that it is of them."""
    largest = 0.0
    for k, sizes in enumerate(SIZES):
        given = examples(graph, sizes, 100 * k, positive)
        expected = graph(*given)
        with torch.no_grad():
            found = run(given)
        for value, ours, theirs in zip(graph.outputs, expected, found, strict=True):
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                what = f"{tuple(theirs.shape)} {theirs.dtype}, not {tuple(ours.shape)} {ours.dtype}"
                raise RecurError(f"{value.name} came out as {what}: no file is kept")
            largest = max(largest, apart(ours, theirs))
    return largest


def examples(graph: Graph, sizes: Mapping[str, int], seed: int, positive: bool) -> list[Tensor]:
    """Something to give a graph, at these sizes or the least that it takes; `positive`: numbers above zero."""
    sizes = {letter: max(size, graph.least.get(letter, 1)) for letter, size in sizes.items()}
    given = [example(value, sizes, seed + k) for k, value in enumerate(graph.inputs)]
    return [part.abs() + 0.5 if positive and part.is_floating_point() else part for part in given]


def in_pytorch(graph: Graph) -> Run:
    """The graph itself, as `largest_difference` takes it."""
    return lambda given: graph(*given)


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference of two tensors, of numbers above 1 the share that it is of them."""
    ours, theirs = ours.double(), theirs.double()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    found = torch.where(same, 0.0, (ours - theirs).abs() / ours.abs().clamp_min(1.0))
    return float(found.nan_to_num(torch.inf, torch.inf).max()) if found.numel() else 0.0


def check(difference: float, what: str) -> float:
    if difference > TOLERANCE:
        raise RecurError(
            f"{what} is {difference:.1e} off what PyTorch computes, more than {TOLERANCE:g}: no file is kept"
        )
    return difference
