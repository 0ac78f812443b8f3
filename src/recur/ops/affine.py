"""The scan of chunks.py as one differentiable operator, `recur::affine_scan`.

Autograd and the transforms of torch.func see a function whose derivatives are scans again; torch.compile and
torch.export see one operator, whatever T is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recur.ops.chunks import solve
from recur.ops.cpu.operators import is_eager


class AffineScan(torch.autograd.Function):
    """`solve` with its derivatives, which are scans again:

        ∂L/∂s_t = d_t + ξ_{t+1} A_{t+1}ᵀ ∂L/∂s_{t+1}        back, from the last step on
        ∂L/∂b_t = ∂L/∂s_t        ∂L/∂A_t = ∂L/∂s_t s_{t−1}ᵀ

    with d_t the gradient that arrives at s_t from outside. In forward mode the same ξ multiplies what is carried on.
    """

    @staticmethod
    def forward(
        n: int, reverse: bool, with_start: bool, bounded: bool, xi: Tensor | None, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        A, b, start = _grouped(n, tensors)
        if is_eager(b[0]):
            return tuple(solve(A, b, start, reverse, with_start, bounded))
        with torch._C._AutoDispatchBelowAutograd():
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
        """The mapped dimension is one more that is pointwise, right behind time: in front of what starts."""
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


LIBRARY = torch.library.Library("recur", "FRAGMENT")
LIBRARY.define(
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
    """All s_t, differentiable; A row by row. torch.compile and torch.export see one operator for any T."""
    if torch.compiler.is_compiling():
        found: Sequence[Tensor] = torch.ops.recur.affine_scan(A, b, start, xi, reverse, with_start, bounded)
        return found
    return _differentiable(A, b, start, xi, reverse, with_start, bounded)


def _differentiable(
    A: Sequence[Tensor | None],
    b: Sequence[Tensor],
    start: Sequence[Tensor],
    xi: Tensor | None,
    reverse: bool,
    with_start: bool,
    bounded: bool,
) -> list[Tensor]:
    return list(AffineScan.apply(len(b), reverse, with_start, bounded, xi, *A, *b, *start))


def _plain(
    A: Sequence[Tensor | None],
    b: Sequence[Tensor],
    start: Sequence[Tensor],
    xi: Tensor | None,
    reverse: bool,
    with_start: bool,
    bounded: bool,
) -> list[Tensor]:
    rows, b, start = _grouped(len(b), [*A, *b, *start])
    return solve(rows, b, start, reverse, with_start, bounded)


def _shapes(A: Any, b: Sequence[Tensor], start: Any, xi: Any, reverse: bool, with_start: bool, *_: Any) -> list[Tensor]:
    return [part.new_empty(part.shape[0] + with_start, *part.shape[1:]) for part in b]


LIBRARY.impl("affine_scan", _plain, "CompositeExplicitAutograd")
LIBRARY.impl("affine_scan", _differentiable, "Autograd")
torch.library.register_fake("recur::affine_scan", _shapes, lib=LIBRARY)


def _grouped(n: int, tensors: Sequence[Any]) -> tuple[list[list[Any]], list[Any], list[Any]]:
    """A row by row, b and the start."""
    A = [list(tensors[i * n : (i + 1) * n]) for i in range(n)]
    return A, list(tensors[n**2 : n**2 + n]), list(tensors[n**2 + n :])


def _transposed(A: Sequence[Tensor | None], n: int) -> list[Tensor | None]:
    return [A[j * n + i] for i in range(n) for j in range(n)]


def _without_start(path: Tensor, ctx: Any) -> Tensor:
    if not ctx.with_start:
        return path
    return path[:-1] if ctx.reverse else path[1:]


def _times_before(factor: Tensor, states: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """(T, …) times the states before each step."""
    if torch.is_grad_enabled() or torch._C._functorch.peek_interpreter_stack() is not None:
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
