"""One scan as a backend sees it: checked and packed, with nothing left to decide."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from recur.cells.cell import Cell, State, Weights
from recur.compat import in_forward_mode
from recur.errors import OptionError
from recur.ops.bptt import BPTT
from recur.ops.packing import Packing
from recur.ops.trace import Trace

StepXi = float | Tensor | None
"""ξ of one step: None if it is 1, a number if all segments share it, otherwise a column."""


@dataclass
class ScanCall:
    """N steps of S segments in packed order: the rows of step k follow the rows of step k − 1."""

    cell: Cell
    weights: Weights
    x: Tensor
    """(B, T, D): the inputs."""
    packing: Packing | None
    """The order of the steps; None if all rows have all steps."""
    widths: tuple[int, ...]
    """The widths of the states: H, or P for a first state that is projected."""
    start: State | None
    """(S, H) each: the start of every segment, longest segment first. None is zero."""
    mask: Tensor | None
    """(S, H): multiplies the state that W multiplies, the same at every step."""
    xi: Tensor | None
    """(N,), float64, on the CPU: factors of the carried gradient. None is 1 everywhere."""
    bptt: BPTT
    dtype: torch.dtype
    """The dtype of the results. A backend may compute in another one."""
    trace: Trace
    matmul_dtype: str = ""
    """The dtype of matrix products, if not that of x: bfloat16 or int8."""

    def to(self, dtype: torch.dtype) -> ScanCall:
        """Return the call with its tensors in another dtype."""
        return dataclasses.replace(
            self,
            weights={name: weight.to(dtype) for name, weight in self.weights.items()},
            x=self.x.to(dtype),
            start=None if self.start is None else tuple(part.to(dtype) for part in self.start),
            mask=None if self.mask is None else self.mask.to(dtype),
        )

    @functools.cached_property
    def sizes(self) -> list[int]:
        """The number of segments that take step k; never increasing. The sum is N."""
        B, T, _ = self.x.shape
        return [B] * T if self.packing is None else self.packing.sizes

    @functools.cached_property
    def state(self) -> State:
        """(S, H) each: the start of every segment, zeros included."""
        return self.start if self.start is not None else self.cell.start(self.x, self.sizes[0], self.widths)

    @functools.cached_property
    def data(self) -> Tensor:
        """(N, D): the inputs in packed order."""
        if self.packing is not None:
            return self.packing.pack(self.x)
        return self.x.transpose(0, 1).reshape(-1, self.x.shape[-1])

    @functools.cached_property
    def edges(self) -> list[StepXi]:
        """ξ of every step; see `StepXi`."""
        if self.xi is None:
            return [None] * len(self.sizes)
        edges: list[StepXi] = []
        for xi in self.xi.split(self.sizes):
            first = float(xi[0])
            alike = bool((xi == first).all())
            column = xi.to(self.x.device, self.x.dtype)[:, None]
            edges.append((None if first == 1 else first) if alike else column)
        return edges


class FinalStates:
    """Collector of the states of segments that end: the shortest segments are last in the batch and end first."""

    def __init__(self) -> None:
        self._ended: list[Sequence[Tensor]] = []

    def end(self, state: Sequence[Tensor], still: int) -> Sequence[Tensor]:
        """Collect all but the first `still` segments, and return the states of the first ones."""
        if still == state[0].shape[0]:
            return state
        self._ended.append([part[still:] for part in state])
        return [part[:still] for part in state]

    def all(self, state: Sequence[Tensor]) -> State:
        if not self._ended:
            return tuple(state)
        return tuple(torch.cat(parts) for parts in zip(state, *reversed(self._ended), strict=True))


class _CarryContext(FunctionCtx):
    xi: StepXi
    clip: float | None


class ScaleGradient(torch.autograd.Function):
    """Identity in the forward pass; in the backward pass g ← ξ g, then g ← min(1, θ/‖g‖) g for each sequence.

    ‖g‖ is taken over all states of the cell: the carried gradient is one vector.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(xi: StepXi, clip: float | None, *states: Tensor) -> State:
        # A view, except in forward mode: PyTorch requires the tangent of a view to be a view too.
        return tuple(state.clone() if in_forward_mode() else state.view_as(state) for state in states)

    @staticmethod
    def setup_context(
        ctx: _CarryContext, inputs: tuple[StepXi, float | None, *tuple[Tensor, ...]], output: State
    ) -> None:
        ctx.xi, ctx.clip = inputs[:2]

    @staticmethod
    def jvp(ctx: Any, _xi: None, _clip: None, *tangents: Tensor) -> State:
        """Multiply the tangent by ξ: the transpose of the backward pass."""
        if ctx.clip is not None:
            raise OptionError("bptt: clip bounds the gradient of a backward pass; a forward-mode derivative has none")
        return tuple(tangent * ctx.xi for tangent in tangents)

    @staticmethod
    def backward(ctx: _CarryContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        carried = list(grads) if ctx.xi is None else [grad * ctx.xi for grad in grads]
        if ctx.clip is not None:
            norm = torch.linalg.vector_norm(torch.cat(carried, dim=-1), dim=-1, keepdim=True)
            carried = [grad * (ctx.clip / norm.clamp_min(ctx.clip)) for grad in carried]
        return None, None, *carried
