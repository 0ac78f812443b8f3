"""Backend `parallel`: cells that are affine in their states, all time steps in parallel, in PyTorch on any device.

The stages of a cell (see recur.compiler.affine) run one after the other, each over the whole sequence: first the
coefficients, then the recurrence s_t = A_t s_{t−1} + b_t where a stage reads its own past. Segments of different
lengths are padded to similar lengths, to at most twice their length.

**The recurrence.** Tensors are (T, …), pointwise in all dimensions after time. Several states may read each other: A is
then a small matrix of such tensors, None where it is zero. Time is split into chunks of L steps. A chunk is an affine
map of the state that enters it. All chunks compute their maps at the same time, in L operations; these maps, L times
fewer, are the same problem again. With the start of each chunk known, all chunks run their L steps. So A and b are read
twice and s is written once, and every value equals that of a loop, except for the rounding of the start of a chunk.
Short sequences are solved by doubling, in log₂ T operations. Nothing is divided by A, which may be 0, 1 or large.

**The operator.** `recur::affine_scan` is one differentiable operator. Autograd and torch.func see a function whose
derivatives are again such scans; torch.compile and torch.export see one operator for every T.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from recur.cells.cell import State
from recur.compat import below_autograd, in_transform, is_eager
from recur.compiler import programs
from recur.compiler.affine import AffineStage, AffineStep, values_of
from recur.ops.call import ScaleTangent, ScanCall
from recur.ops.packing import GatherRows, ScatterRows

Matrix: TypeAlias = Sequence[Sequence[Tensor | None]]

CHUNK = {"cpu": 8, "cuda": 4}
"""L. Each level of chunks takes 3 L operations and leaves 1/L of the numbers to the next level."""
SMALL = {"cpu": 2**15, "cuda": 2**23}
"""Up to so many numbers the recurrence is solved by doubling, not in chunks."""
LARGE = {"cpu": 2**13, "cuda": 2**22}
"""From so many numbers per step on, steps run one by one.

All three were measured. On a device where operations are slow to start and fast to run, few large operations win.
"""


def solve(
    A: Matrix, b: Sequence[Tensor], start: Sequence[Tensor], reverse: bool, with_start: bool, bounded: bool
) -> list[Tensor]:
    """Return all s_t, (T, …), in the order of time; T + 1 of them with the start. In reverse, s_t = A_t s_{t+1} + b_t.

    bounded: |A| ≤ 1. Otherwise a product of many A may overflow to infinity where it multiplies a state of zero.
    """
    T = b[0].shape[0]
    paths = [part.new_empty(T + with_start, *part.shape[1:]) for part in b]
    into = paths
    if with_start:
        into = [path[:-1] if reverse else path[1:] for path in paths]
        for path, part in zip(paths, start, strict=True):
            path[-1 if reverse else 0] = part
    L = _chunk(T, b[0])
    entering = [part.unsqueeze(0) for part in start]
    if L < T:
        entering = _entering(A, b, start, L, reverse, bounded)
    _steps(A, b, entering, into, L, reverse)
    return paths


def _chunk(T: int, b: Tensor) -> int:
    """Return the length L of a chunk; T for a single chunk, whose steps run one by one."""
    L = _of(CHUNK, b)
    return T if T <= L or b.numel() // T >= _of(LARGE, b) else L


def _of(numbers: dict[str, int], like: Tensor) -> int:
    """Return the constant for the device of a tensor."""
    return numbers["cpu" if like.device.type == "cpu" else "cuda"]


def _steps(
    A: Matrix, b: Sequence[Tensor], entering: Sequence[Tensor], into: Sequence[Tensor], L: int, reverse: bool
) -> None:
    """Run L steps of every chunk from its start. Chunks are in the order of time, and the last may be shorter."""
    T, states = b[0].shape[0], list(entering)
    for step in range(min(L, T)):
        at = slice((T - 1 - step) % L, T - step, L) if reverse else slice(step, T, L)
        here = [part[at] for part in into]
        if here[0].shape[0] < states[0].shape[0]:  # the short chunk has ended
            states = [state[1:] if reverse else state[:-1] for state in states]
        _advance(A, b, at, states, here)
        states = here


def _advance(A: Matrix, b: Sequence[Tensor], at: slice, states: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    for row, part, to in zip(A, b, into, strict=True):
        added = part[at]
        for a, state in zip(row, states, strict=True):
            if a is not None:
                added = torch.addcmul(added, a[at], state, out=to)
        if added is not to:
            to.copy_(added)


def _entering(
    A: Matrix, b: Sequence[Tensor], start: Sequence[Tensor], L: int, reverse: bool, bounded: bool
) -> list[Tensor]:
    """Return the states that enter each chunk."""
    T = b[0].shape[0]
    full = -(-T // L) - 1  # the map of the last chunk is not needed
    first = T - full * L if reverse else 0
    end = T if reverse else full * L
    P: list[list[Tensor | None]] = []
    local: list[Tensor] = []
    for step in range(L):
        at = slice(first + (L - 1 - step if reverse else step), end, L)
        if step == 0:
            P = [[None if a is None else a[at] for a in row] for row in A]
            local = [part[at] for part in b]
            continue
        moved = [torch.empty_like(part) for part in local]
        _advance(A, b, at, local, moved)
        P, local = _product([[None if a is None else a[at] for a in row] for row in A], P), moved
    if not bounded or local[0].numel() <= _of(SMALL, local[0]):
        return _doubled(P, local, start, reverse, bounded)
    return solve(P, local, start, reverse, True, bounded)


def _product(A: Matrix, B: Matrix) -> list[list[Tensor | None]]:
    """Multiply small matrices of tensors."""
    found: list[list[Tensor | None]] = []
    for row in A:
        products: list[Tensor | None] = []
        for k in range(len(B)):
            total: Tensor | None = None
            for a, other in zip(row, B, strict=True):
                b = other[k]
                if a is not None and b is not None:
                    total = a * b if total is None else torch.addcmul(total, a, b)
            products.append(total)
        found.append(products)
    return found


def _doubled(A: Matrix, b: Sequence[Tensor], start: Sequence[Tensor], reverse: bool, bounded: bool) -> list[Tensor]:
    """Solve with the start in log₂ T steps: after each step, s_t contains twice as many of its terms."""
    T = b[0].shape[0]
    paths = [
        torch.cat((part, first[None]) if reverse else (first[None], part)) for part, first in zip(b, start, strict=True)
    ]
    # Row t of P is the product of the last d factors before t. Rows closer than d to the start are complete.
    P: Matrix = A
    d = 1
    while d <= T:
        late = [path[:-d] if reverse else path[d:] for path in paths]
        early = [path[d:] if reverse else path[:-d] for path in paths]
        terms = [_applied(row, early, bounded) for row in P]
        for part, term in zip(late, terms, strict=True):
            if term is not None:
                part += term
        here: Matrix = [[None if p is None else p[:-d] if reverse else p[d:] for p in row] for row in P]
        there: Matrix = [[None if p is None else p[d:] if reverse else p[:-d] for p in row] for row in P]
        P = _product(here, there)
        d *= 2
    return paths


def _applied(row: Sequence[Tensor | None], states: Sequence[Tensor], bounded: bool) -> Tensor | None:
    """Return Σ_j A_ij s_j, zero where s is zero even if A is infinite."""
    total: Tensor | None = None
    for a, state in zip(row, states, strict=True):
        if a is not None:
            term = a * state
            term = term if bounded else torch.where(state == 0, state, term)
            total = term if total is None else total + term
    return total


class AffineScan(torch.autograd.Function):
    """`solve` with its derivatives, which are again scans:

        ∂L/∂s_t = d_t + ξ_{t+1} A_{t+1}ᵀ ∂L/∂s_{t+1}        from the last step to the first
        ∂L/∂b_t = ∂L/∂s_t        ∂L/∂A_t = ∂L/∂s_t s_{t−1}ᵀ

    with d_t the incoming gradient of s_t. In forward mode the carried tangent is multiplied by the same ξ.
    """

    @staticmethod
    def forward(
        n: int, reverse: bool, with_start: bool, bounded: bool, xi: Tensor | None, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        A, b, start = _grouped(n, tensors)
        if is_eager(b[0]):
            return tuple(solve(A, b, start, reverse, with_start, bounded))
        with below_autograd():
            found: list[Tensor] = torch.ops.recur.affine_scan(
                tensors[: n**2], b, start, None, reverse, with_start, bounded
            )
        return tuple(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.n, ctx.reverse, ctx.with_start, ctx.bounded, xi, *tensors = inputs
        A, start = tensors[: ctx.n**2], tensors[-ctx.n :]
        ctx.save_for_backward(xi, *A, *start, *output)
        ctx.save_for_forward(xi, *A, *start, *output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        n, reverse = ctx.n, ctx.reverse
        xi, *saved = ctx.saved_tensors
        A, start, paths = saved[: n**2], saved[n**2 : n**2 + n], saved[n**2 + n :]
        arriving = [torch.zeros_like(path) if grad is None else grad for grad, path in zip(grads, paths, strict=True)]
        d = [_without_start(grad, ctx) for grad in arriving]
        scaled = [a if a is None or xi is None else a * xi for a in A]
        rest, last = (slice(1, None), slice(0, 1)) if reverse else (slice(None, -1), slice(-1, None))
        shifted = [None if a is None else a[:-1] if reverse else a[1:] for a in _transposed(scaled, n)]
        ends = [part[last].squeeze(0) for part in d]
        G: Sequence[Tensor] = d
        if d[0].shape[0] > 1:
            G = AffineScan.apply(n, not reverse, True, ctx.bounded, None, *shifted, *(part[rest] for part in d), *ends)
        wanted = ctx.needs_input_grad[5:]
        states = [_without_start(path, ctx) for path in paths]
        d_A = [
            _times_before(G[k // n], states[k % n], start[k % n], reverse) if a is not None and need else None
            for k, (a, need) in enumerate(zip(A, wanted, strict=False))
        ]
        first = -1 if reverse else 0
        d_start: list[Tensor | None] = [None] * n
        for j in range(n) if any(wanted[n**2 + n :]) else ():
            total = arriving[j][first] if ctx.with_start else None
            for i in range(n):
                if (a := scaled[i * n + j]) is not None:
                    term = a[first] * G[i][first]
                    total = term if total is None else total + term
            d_start[j] = total
        return None, None, None, None, None, *d_A, *G, *d_start

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        n, reverse = ctx.n, ctx.reverse
        xi, *saved = ctx.saved_tensors
        A, start, paths = saved[: n**2], saved[n**2 : n**2 + n], saved[n**2 + n :]
        d_A, d_b, d_start = _grouped(n, tangents[5:])
        states = [_without_start(path, ctx) for path in paths]
        added = []
        for i in range(n):
            total = torch.zeros_like(states[i]) if d_b[i] is None else d_b[i]
            for j in range(n):
                if (slope := d_A[i][j]) is not None:
                    total = total + _times_before(slope, states[j], start[j], reverse)
            added.append(total)
        begun = [torch.zeros_like(part) if d is None else d for part, d in zip(start, d_start, strict=True)]
        scaled = [a if a is None or xi is None else a * xi for a in A]
        found: tuple[Tensor, ...] = AffineScan.apply(
            n, reverse, ctx.with_start, ctx.bounded, None, *scaled, *added, *begun
        )
        return found

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Move the mapped dimension after time (for the start: to the front), as one more pointwise dimension."""
        n, reverse, with_start, bounded, xi, *tensors = inputs
        timed = n**2 + n

        def moved(value: Tensor | None, dim: int | None, to: int) -> Tensor | None:
            if value is None:
                return None
            value = value.unsqueeze(to) if dim is None else value.movedim(dim, to)
            return value.expand(*value.shape[:to], info.batch_size, *value.shape[to + 1 :])

        dims = in_dims[5:]
        mapped = [moved(t, dim, int(k < timed)) for k, (t, dim) in enumerate(zip(tensors, dims, strict=True))]
        xi = None if xi is None else moved(xi, in_dims[4], 1)
        found = AffineScan.apply(n, reverse, with_start, bounded, xi, *mapped)
        return found, (1,) * n


AFFINE_LIBRARY = torch.library.Library("recur", "FRAGMENT")
AFFINE_LIBRARY.define(
    "affine_scan(Tensor?[] A, Tensor[] b, Tensor[] start, Tensor? xi, bool reverse, bool with_start, bool bounded) "
    "-> Tensor[]"
)


def affine_scan(
    A: Sequence[Tensor | None],
    b: Sequence[Tensor],
    start: Sequence[Tensor],
    xi: Tensor | None,
    reverse: bool = False,
    with_start: bool = False,
    bounded: bool = False,
) -> Sequence[Tensor]:
    """Return all s_t, differentiable. A is listed row by row."""
    scan = torch.ops.recur.affine_scan if torch.compiler.is_compiling() else _differentiable
    found: Sequence[Tensor] = scan(A, b, start, xi, reverse, with_start, bounded)
    return found


def _differentiable(A: Any, b: Any, start: Any, xi: Tensor | None, *options: bool) -> list[Tensor]:
    return list(AffineScan.apply(len(b), *options, xi, *A, *b, *start))


def _solve_lists(A: Any, b: Any, start: Any, xi: Tensor | None, *options: bool) -> list[Tensor]:
    rows, b, start = _grouped(len(b), [*A, *b, *start])
    return solve(rows, b, start, *options)


def _affine_shapes(
    A: Any, b: Sequence[Tensor], start: Any, xi: Any, reverse: bool, with_start: bool, *_: Any
) -> list[Tensor]:
    return [part.new_empty(part.shape[0] + with_start, *part.shape[1:]) for part in b]


AFFINE_LIBRARY.impl("affine_scan", _solve_lists, "CompositeExplicitAutograd")
AFFINE_LIBRARY.impl("affine_scan", _differentiable, "Autograd")
torch.library.register_fake("recur::affine_scan", _affine_shapes, lib=AFFINE_LIBRARY)


def _grouped(n: int, tensors: Sequence[Any]) -> tuple[list[list[Any]], list[Any], list[Any]]:
    """Split a list into the rows of A, b and the start."""
    A = [list(tensors[i * n : (i + 1) * n]) for i in range(n)]
    return A, list(tensors[n**2 : n**2 + n]), list(tensors[n**2 + n :])


def _transposed(A: Sequence[Tensor | None], n: int) -> list[Tensor | None]:
    return [A[j * n + i] for i in range(n) for j in range(n)]


def _without_start(path: Tensor, ctx: Any) -> Tensor:
    if not ctx.with_start:
        return path
    return path[:-1] if ctx.reverse else path[1:]


def _times_before(factor: Tensor, states: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """Multiply (T, …) by the states before each step."""
    if torch.is_grad_enabled() or in_transform():
        first = start.unsqueeze(0)
        return factor * torch.cat((states[1:], first) if reverse else (first, states[:-1]))
    found = torch.empty_like(factor)
    if reverse:
        torch.mul(factor[:-1], states[1:], out=found[:-1])
        torch.mul(factor[-1], start, out=found[-1])
    else:
        torch.mul(factor[1:], states[:-1], out=found[1:])
        torch.mul(factor[0], start, out=found[0])
    return found


def computes_in(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for float16, whose range is too small for products of many factors and for small constants."""
    return torch.float32 if dtype == torch.float16 else dtype


def unsupported_reason(call: ScanCall) -> str | None:
    if call.bptt.clip is not None:
        return "clip bounds the gradient of one step after the other, and this takes many at once"
    return programs.not_affine(call.cell, "bias_ih" in call.weights)


def run(call: ScanCall) -> tuple[Tensor, State]:
    cell, weights = call.cell, call.weights
    step, _ = programs.programs_of(cell, "bias_ih" in weights)
    affine = step.affine
    assert isinstance(affine, AffineStep)
    _, _, own = programs.operands(cell, weights)
    x, packing = call.x, call.packing
    # Not `ScanCall.data` without packing: torch.compile cannot trace a cached property.
    data = call.data if packing is not None else x.transpose(0, 1).reshape(-1, x.shape[-1])
    share = linear(data, weights["weight_ih"], weights.get("bias_ih"))
    if call.trace.wanted:
        share = call.trace.record_term("weight_ih", share, data)
    leaves = {("x", g): part for g, part in enumerate(share.chunk(len(cell.gates), dim=-1))}
    leaves |= {("w", k): value for k, value in enumerate(own)}
    grid = (
        SegmentBlocks.whole(x.shape[0], x.shape[1])
        if packing is None
        else SegmentBlocks.of(packing.sizes, share.device)
    )
    like = leaves["x", 0]
    begun = call.start or cell.start(like, grid.segments, call.widths)
    xi = None if call.xi is None else call.xi.to(like.device, like.dtype)[:, None]

    known: dict[int, Tensor] = {}
    after: list[Tensor] = [like] * len(cell.states)
    for stage in affine.stages:
        found = iter([value.expand_as(like) for value in affine.terms.evaluate(values_of(stage), leaves, known)])
        matrix = [[None if value is None else next(found) for value in row] for row in stage.matrix]
        offset = list(found)
        if call.trace.wanted:  # ∂L/∂b_t is ∂L/∂s_t; a constant b must depend on a tensor that requires a gradient
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
    grid: SegmentBlocks,
    stage: AffineStage,
    matrix: Sequence[Sequence[Tensor | None]],
    offset: Sequence[Tensor],
    start: Sequence[Tensor],
    xi: Tensor | None,
) -> list[Tensor]:
    """Return the states of a stage after every step, in packed order."""
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


class SegmentBlocks(NamedTuple):
    """Blocks of (T, n) steps: segments of similar length, padded to the longest of the block."""

    lengths: list[int]
    """The length T of each block."""
    rows: list[slice]
    """The segments of each block."""
    where: Tensor | None
    """(N,): the index of every step in the flattened blocks; None if it is the packed order."""
    ends: Tensor | slice
    """The indices of the last steps of all segments, in packed order."""
    earlier: Tensor | slice
    """The indices of the previous steps, for all steps except the first ones, in packed order."""

    @staticmethod
    def whole(S: int, T: int) -> SegmentBlocks:
        """Return one block of S segments of length T."""
        return SegmentBlocks([T], [slice(0, S)], None, slice((T - 1) * S, T * S), slice(0, (T - 1) * S))

    @staticmethod
    def of(sizes: Sequence[int], device: torch.device) -> SegmentBlocks:
        S, steps = sizes[0], len(sizes)
        if sizes[-1] == S:
            return SegmentBlocks.whole(S, steps)
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
        return SegmentBlocks(lengths[first].tolist(), rows, *at)

    @property
    def segments(self) -> int:
        end: int = self.rows[-1].stop
        return end

    def spread(self, packed: Tensor) -> list[Tensor]:
        """Split packed steps (N, …) into blocks (T, n, …), zero where there is no step."""
        shapes = [(T, rows.stop - rows.start) for T, rows in zip(self.lengths, self.rows, strict=True)]
        if self.where is None:
            return [packed.view(*shapes[0], -1)]
        flat: Tensor = ScatterRows.apply(packed, self.where, sum(T * n for T, n in shapes))
        parts = flat.split([T * n for T, n in shapes])
        return [part.view(*shape, -1) for part, shape in zip(parts, shapes, strict=True)]

    def packed(self, blocks: Sequence[Tensor]) -> Tensor:
        flat = [block.reshape(-1, block.shape[-1]) for block in blocks]
        if self.where is None:
            return flat[0]
        found: Tensor = GatherRows.apply(torch.cat(flat), self.where)
        return found

    def last(self, packed: Tensor) -> Tensor:
        """Return the last step of every segment, (S, …)."""
        return packed[self.ends]

    def before(self, state: Tensor, start: Tensor, xi: Tensor | None) -> Tensor:
        """Return a state before every step, (N, …); the backward pass multiplies its gradient by ξ."""
        earlier = state[self.earlier] if isinstance(self.earlier, slice) else GatherRows.apply(state, self.earlier)
        before = torch.cat((start, earlier))
        return before if xi is None else ScaleTangent.apply(xi, None, before)[0]
