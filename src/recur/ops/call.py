"""One scan as a backend sees it: checked, packed, and with nothing left to decide."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import FunctionCtx

from recur.cells.cell import Cell, State, Weights
from recur.errors import OptionError
from recur.ops.bptt import BPTT
from recur.ops.packing import Packing
from recur.ops.trace import Trace

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
    widths: tuple[int, ...]
    """Of the states: H, but for a first state that is projected."""
    start: State | None
    """(S, H) each: where the segments start, longest first. None is zero."""
    mask: Tensor | None
    """(S, H): multiplies what W multiplies, the same at every step."""
    xi: Tensor | None
    """(N,), float64, on the CPU: what multiplies the carried gradient. None is 1 everywhere."""
    bptt: BPTT
    dtype: torch.dtype
    """Of the results. A backend may compute in another one."""
    trace: Trace
    products: str = ""
    """What products read, if not numbers as they are: bfloat16 or int8."""

    def to(self, dtype: torch.dtype) -> Call:
        """The same call, computed in another dtype."""
        return dataclasses.replace(
            self,
            weights={name: weight.to(dtype) for name, weight in self.weights.items()},
            x=self.x.to(dtype),
            start=None if self.start is None else tuple(part.to(dtype) for part in self.start),
            mask=None if self.mask is None else self.mask.to(dtype),
        )

    @functools.cached_property
    def sizes(self) -> list[int]:
        """How many segments take step k; never rising. Their sum is N."""
        B, T, _ = self.x.shape
        return [B] * T if self.packing is None else self.packing.sizes

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

    def computes_in(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the arithmetic where results of this one are wanted."""

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
        # A view, unless a forward-mode derivative is under way: that of a view would have to be one too.
        return tuple(state.view_as(state) if forward_ad._current_level < 0 else state.clone() for state in states)

    @staticmethod
    def setup_context(
        ctx: _CarryContext, inputs: tuple[Edge, float | None, *tuple[Tensor, ...]], output: State
    ) -> None:
        ctx.xi, ctx.clip = inputs[:2]

    @staticmethod
    def jvp(ctx: Any, _xi: None, _clip: None, *tangents: Tensor) -> State:
        """The transpose of the way back: what is carried forward is multiplied by the same ξ."""
        if ctx.clip is not None:
            raise OptionError("bptt: clip bounds a gradient on its way back; a derivative in forward mode has none")
        return tuple(tangent * ctx.xi for tangent in tangents)

    @staticmethod
    def backward(ctx: _CarryContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        carried = list(grads) if ctx.xi is None else [grad * ctx.xi for grad in grads]
        if ctx.clip is not None:
            norm = torch.linalg.vector_norm(torch.cat(carried, dim=-1), dim=-1, keepdim=True)
            carried = [grad * (ctx.clip / norm.clamp_min(ctx.clip)) for grad in carried]
        return None, None, *carried
