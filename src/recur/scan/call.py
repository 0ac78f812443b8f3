"""One scan as a backend sees it: checked, packed, and with nothing left to decide."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from recur.bptt import BPTT
from recur.cells.cell import Cell, State, Weights
from recur.scan.packing import Packing
from recur.scan.trace import Trace

Edge = float | Tensor | None
"""ξ of one step: None where it is 1, a number where all segments share it, a column where they do not."""


@dataclass
class Call:
    """N steps of S segments, in packed order: the rows of step k follow those of step k − 1."""

    cell: Cell
    weights: Weights
    x: Tensor
    """(B, T, D): the inputs as they were given."""
    packing: Packing | None
    """The order in which they are taken, if that is not simply step after step, row after row."""
    sizes: list[int]
    """How many segments take step k; never rising. Their sum is N."""
    widths: tuple[int, ...]
    """Of the states: H, but for a first state that is projected."""
    start: State | None
    """(S, H) each: where the segments start, longest first. None is zero."""
    mask: Tensor | None
    """(S, H): multiplies what W multiplies, the same at every step."""
    xi: Tensor | None
    """(N,), float64, on the CPU: what multiplies the carried gradient. None is 1 everywhere."""
    bptt: BPTT
    trace: Trace

    @functools.cached_property
    def state(self) -> State:
        """(S, H) each: where the segments start, also where that is zero."""
        return self.start if self.start is not None else self.cell.start(self.x, self.sizes[0], self.widths)

    @functools.cached_property
    def data(self) -> Tensor:
        """(N, D): the inputs in packed order."""
        if self.packing is not None:
            return self.packing.pack(self.x)
        return self.x.transpose(0, 1).reshape(-1, self.x.shape[-1])

    @functools.cached_property
    def edges(self) -> list[Edge]:
        """ξ of every step."""
        if self.xi is None:
            return [None] * len(self.sizes)
        edges: list[Edge] = []
        for xi in self.xi.split(self.sizes):
            first = float(xi[0])
            alike = bool((xi == first).all())
            column = xi.to(self.x.device, self.x.dtype)[:, None]
            edges.append((None if first == 1 else first) if alike else column)
        return edges


class Backend(Protocol):
    """One way to run a scan. All give the same numbers and the same gradients."""

    name: str

    def unsupported_reason(self, call: Call) -> str | None:
        """Why this backend cannot run the call, or None if it can."""

    def run(self, call: Call) -> tuple[Tensor, State]:
        """The outputs (N, H), side by side if several, and the final states (S, H), in packed order; without one also
        outputs (B, T, H)."""


class Finals:
    """Collects the states of segments as they end; the shortest, which stand last, end first."""

    def __init__(self) -> None:
        self._ended: list[Sequence[Tensor]] = []

    def end(self, state: Sequence[Tensor], still: int) -> Sequence[Tensor]:
        """Collect all but the first `still` segments, and return those that go on."""
        if still == state[0].shape[0]:
            return state
        self._ended.append([part[still:] for part in state])
        return [part[:still] for part in state]

    def all(self, state: Sequence[Tensor]) -> State:
        if not self._ended:
            return tuple(state)
        return tuple(torch.cat(parts) for parts in zip(state, *reversed(self._ended), strict=True))


class _CarryContext(FunctionCtx):
    xi: Edge
    clip: float | None


class Carry(torch.autograd.Function):
    """Forward, the identity; backward, g ← ξ g and then g ← min(1, θ/‖g‖) g for each sequence.

    ‖g‖ is over all states of the cell together: the carried gradient is one vector, whatever its parts are named.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(xi: Edge, clip: float | None, *states: Tensor) -> State:
        return tuple(state.view_as(state) for state in states)

    @staticmethod
    def setup_context(
        ctx: _CarryContext, inputs: tuple[Edge, float | None, *tuple[Tensor, ...]], output: State
    ) -> None:
        ctx.xi, ctx.clip = inputs[:2]

    @staticmethod
    def backward(ctx: _CarryContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        carried = list(grads) if ctx.xi is None else [grad * ctx.xi for grad in grads]
        if ctx.clip is not None:
            norm = torch.linalg.vector_norm(torch.cat(carried, dim=-1), dim=-1, keepdim=True)
            carried = [grad * (ctx.clip / norm.clamp_min(ctx.clip)) for grad in carried]
        return None, None, *carried
