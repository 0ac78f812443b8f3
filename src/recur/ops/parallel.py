"""Cells that are affine in their states, all of time at once: PyTorch operations on any device.

A cell's stages (see recur.compiler.affine) are taken one after the other, each over the whole sequence: coefficients
from what is known by then, and the scan of chunks.py where a stage reads its own past. Segments of different lengths
are padded to others of about theirs: at most twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from recur.cells.cell import State
from recur.compiler import program_text
from recur.compiler.affine import AffineStage, AffineStep, values_of
from recur.ops.affine import affine_scan
from recur.ops.call import Call, Carry
from recur.ops.packing import _Gather, _Scatter

name = "parallel"


def computes_in(dtype: torch.dtype) -> torch.dtype:
    """Factors of many steps, and small constants of a cell's program, are beyond what float16 can hold."""
    return torch.float32 if dtype == torch.float16 else dtype


def unsupported_reason(call: Call) -> str | None:
    if call.bptt.clip is not None:
        return "clip bounds the gradient of one step after the other, and this takes many at once"
    return program_text.not_affine(call.cell, "bias_ih" in call.weights)


def run(call: Call) -> tuple[Tensor, State]:
    cell, weights = call.cell, call.weights
    step, _ = program_text.programs_of(cell, "bias_ih" in weights)
    affine = step.affine
    assert isinstance(affine, AffineStep)
    _, _, own = program_text.operands(cell, weights)
    x, packing = call.x, call.packing
    # Written out where torch.compile has to follow it, which `Call.data`, kept once it is made, does not allow.
    data = call.data if packing is not None else x.transpose(0, 1).reshape(-1, x.shape[-1])
    share = linear(data, weights["weight_ih"], weights.get("bias_ih"))
    if call.trace.wanted:
        share = call.trace.record_term("weight_ih", share, data)
    leaves = {("x", g): part for g, part in enumerate(share.chunk(len(cell.gates), dim=-1))}
    leaves |= {("w", k): value for k, value in enumerate(own)}
    grid = Grid.whole(x.shape[0], x.shape[1]) if packing is None else Grid.of(packing.sizes, share.device)
    like = leaves["x", 0]
    begun = call.start or cell.start(like, grid.segments, call.widths)
    xi = None if call.xi is None else call.xi.to(like.device, like.dtype)[:, None]

    known: dict[int, Tensor] = {}
    after: list[Tensor] = [like] * len(cell.states)
    for stage in affine.stages:
        found = iter([value.expand_as(like) for value in affine.terms.evaluate(values_of(stage), leaves, known)])
        matrix = [[None if value is None else next(found) for value in row] for row in stage.matrix]
        offset = list(found)
        if call.trace.wanted:  # ∂L/∂b_t is ∂L/∂s_t; where b is a number, autograd needs a reason to look at it
            never = torch.zeros((), dtype=torch.bool, device=like.device)
            offset = [b if b.requires_grad else torch.where(never, like, b) for b in offset]
            offset = [call.trace.record_gradient(cell.states[j], b) for j, b in zip(stage.states, offset, strict=True)]
        states: Sequence[Tensor] = offset
        if stage.carried:
            states = _carried(grid, stage, matrix, offset, [begun[j] for j in stage.states], xi)
        for j, state in zip(stage.states, states, strict=True):
            after[j] = state
            if affine.terms[step.states[j]].args:
                known[step.states[j]] = state
            if j in affine.before:
                leaves["s", j] = grid.before(state, begun[j], xi)
    return cell.output(after), tuple(grid.last(state) for state in after)


def _carried(
    grid: Grid,
    stage: AffineStage,
    matrix: Sequence[Sequence[Tensor | None]],
    offset: Sequence[Tensor],
    start: Sequence[Tensor],
    xi: Tensor | None,
) -> list[Tensor]:
    """The states of a stage after every step, in packed order."""
    A = [None if a is None else grid.spread(a) for row in matrix for a in row]
    b = [grid.spread(part) for part in offset]
    edges = None if xi is None else grid.spread(xi)
    blocks: list[Sequence[Tensor]] = []
    for k, rows in enumerate(grid.rows):
        begun = [part[rows] for part in start]
        here = [None if a is None else a[k] for a in A], [part[k] for part in b]
        block_xi = None if edges is None else edges[k]
        blocks.append(affine_scan(*here, begun, block_xi, bounded=stage.bounded))
    return [grid.packed(parts) for parts in zip(*blocks, strict=True)]


class Grid(NamedTuple):
    """Segments as blocks of (T, n) steps: those of about the same length together, padded to the longest of them."""

    lengths: list[int]
    """Of the blocks."""
    rows: list[slice]
    """The segments of each block."""
    where: Tensor | None
    """(N,): the place of every step in the blocks laid flat; None where they are in packed order anyway."""
    ends: Tensor | slice
    """Where each segment's last step stands in packed order."""
    earlier: Tensor | slice
    """Where the step before each stands, for all but the first of each segment."""

    @staticmethod
    def whole(S: int, T: int) -> Grid:
        """All of one length."""
        return Grid([T], [slice(0, S)], None, slice((T - 1) * S, T * S), slice(0, (T - 1) * S))

    @staticmethod
    def of(sizes: Sequence[int], device: torch.device) -> Grid:
        S, steps = sizes[0], len(sizes)
        if sizes[-1] == S:
            return Grid.whole(S, steps)
        count = np.array(sizes)
        lengths = len(count) - np.searchsorted(count[::-1], np.arange(S), side="right")
        offset = np.cumsum(count) - count
        step = np.repeat(np.arange(steps), count)
        segment = np.arange(count.sum()) - offset[step]
        edges = [0]
        while edges[-1] < S:  # longest first
            edges.append(int(np.searchsorted(-lengths, -(lengths[edges[-1]] // 2), side="right")))
        first, width = np.array(edges[:-1]), np.diff(edges)
        block = np.searchsorted(edges, segment, side="right") - 1
        sizes_of = lengths[first] * width
        base = np.cumsum(sizes_of) - sizes_of
        where = base[block] + step * width[block] + segment - first[block]
        rows = [slice(begin, end) for begin, end in itertools.pairwise(edges)]
        ends = offset[lengths - 1] + np.arange(S)
        earlier = np.arange(S, len(step)) - np.repeat(count[:-1], count[1:])
        at = [torch.from_numpy(index).to(device) for index in (where, ends, earlier)]
        return Grid(lengths[first].tolist(), rows, *at)

    @property
    def segments(self) -> int:
        end: int = self.rows[-1].stop
        return end

    def spread(self, packed: Tensor) -> list[Tensor]:
        """(N, …) as blocks of (T, n, …), zero where there is no step."""
        shapes = [(T, rows.stop - rows.start) for T, rows in zip(self.lengths, self.rows, strict=True)]
        if self.where is None:
            return [packed.view(*shapes[0], -1)]
        flat: Tensor = _Scatter.apply(packed, self.where, sum(T * n for T, n in shapes))
        parts = flat.split([T * n for T, n in shapes])
        return [part.view(*shape, -1) for part, shape in zip(parts, shapes, strict=True)]

    def packed(self, blocks: Sequence[Tensor]) -> Tensor:
        flat = [block.reshape(-1, block.shape[-1]) for block in blocks]
        if self.where is None:
            return flat[0]
        found: Tensor = _Gather.apply(torch.cat(flat), self.where)
        return found

    def last(self, packed: Tensor) -> Tensor:
        """(S, …): of every segment, its last step."""
        return packed[self.ends]

    def before(self, state: Tensor, start: Tensor, xi: Tensor | None) -> Tensor:
        """A state before every step, (N, …); on the way back its gradient is multiplied by ξ."""
        earlier = state[self.earlier] if isinstance(self.earlier, slice) else _Gather.apply(state, self.earlier)
        before = torch.cat((start, earlier))
        return before if xi is None else Carry.apply(xi, None, before)[0]
