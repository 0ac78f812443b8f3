"""Grids along their anti-diagonals, forward and back, with gradients by hand.

Corners come first, then units, and points last: (K, H, n · B). So a diagonal is one batched product for all corners,
a gate is one piece of memory, and a diagonal's neighbours are runs of columns. On the way back each diagonal hands its
gradient to the one before.

    net    h = tanh(a)                          ∂a = (1 − h²) ∂h
    lstm   c = i ⊙ g + f_1 ⊙ c_1 + f_2 ⊙ c_2    ∂c = ∂c' + ∂h ⊙ o ⊙ (1 − tanh²(c))
           h = o ⊙ tanh(c)                      ∂i = ∂c ⊙ g   ∂o = ∂h ⊙ tanh(c)   ∂f_k = ∂c ⊙ c_k   ∂g = ∂c ⊙ i
                                                ∂c_k = ∂c ⊙ f_k         (∂c': what the next diagonals handed back)
    both   a = share + U [h_1; h_2]             ∂[h_1; h_2] = Uᵀ ∂a     ∂U = Σ ∂a [h_1; h_2]ᵀ
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_sigmoid_back: Any = torch.ops.aten.sigmoid_backward
_tanh_back: Any = torch.ops.aten.tanh_backward


class Diagonal(NamedTuple):
    """Runs of columns of a diagonal, and of the one before it, that are neighbours on the grid."""

    columns: int
    below: slice
    """The points that have a neighbour above …"""
    above: slice
    """… and that neighbour."""
    right: slice
    """The points that have a neighbour to the left …"""
    left: slice
    """… and that neighbour."""


def diagonals(R: int, C: int, B: int) -> list[Diagonal]:
    found = []
    top_before = 0
    for d in range(R + C - 1):
        top, bottom = max(0, d - C + 1), min(R - 1, d)
        n = bottom - top + 1
        first, last = int(top == 0), int(bottom == d)  # in row 0 there is none above, in column 0 none to the left
        left = top - top_before
        above = left + first - 1
        spans = (first, n), (above, above + n - first), (0, n - last), (left, left + n - last)
        found.append(Diagonal(n * B, *(slice(a * B, b * B) for a, b in spans)))
        top_before = top
    return found


class Net:
    """The pointwise part: a (K, H, N) to the states (1, K, H, N), and back."""

    states = 1

    @staticmethod
    def forward(a: Tensor, states: Tensor, memories: Tensor) -> None:
        torch.tanh(a, out=states[0])

    @staticmethod
    def backward(d_states: Tensor, a: Tensor, states: Tensor, memories: Tensor, da: Tensor) -> None:
        _tanh_back(d_states[0], states[0], grad_input=da)


class LSTM:
    """The pointwise part: a (K, 5H, N), of i, o, f_1, f_2 and g, and c_1, c_2 to h and c (2, K, H, N), and back."""

    states = 2

    @staticmethod
    def forward(a: Tensor, states: Tensor, memories: Tensor) -> None:
        """σ and tanh of a in place."""
        H = states.shape[2]
        a[:, : 4 * H].sigmoid_()
        a[:, 4 * H :].tanh_()
        i, o, f, g = a.split([H, H, 2 * H, H], dim=1)
        c = torch.mul(i, g, out=states[1])
        c += (f * memories).unflatten(1, (2, H)).sum(1)
        torch.mul(o, torch.tanh(c), out=states[0])

    @staticmethod
    def backward(d_states: Tensor, a: Tensor, states: Tensor, memories: Tensor, da: Tensor) -> None:
        """∂a into `da`; ∂c into `d_states`, where the neighbours find it."""
        H = states.shape[2]
        i, o, _, g = a.split([H, H, 2 * H, H], dim=1)
        di, do, df, dg = da.split([H, H, 2 * H, H], dim=1)
        dh, t = d_states[0], torch.tanh(states[1])
        dc = d_states[1].add_(_tanh_back(dh * o, t))
        torch.mul(dc, g, out=di)
        torch.mul(dh, t, out=do)
        torch.mul(torch.cat([dc, dc], dim=1), memories, out=df)
        torch.mul(dc, i, out=dg)
        through = slice(4 * H)
        _sigmoid_back(da[:, through], a[:, through], grad_input=da[:, through])
        _tanh_back(dg, g, grad_input=dg)


class Reordered(torch.autograd.Function):
    """Axis 2 in another order, and on the way back in the old one: a permutation needs no sums of gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.back = back
        return x.index_select(2, order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0].index_select(2, ctx.back), None, None


class Along(torch.autograd.Function):
    """share (K, G·H, R·C·B), diagonal by diagonal, and U (K, G·H, 2H) to the states h (K, H, R·C·B) of all points."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, U: Tensor, R: int, C: int, step: type[Net] | type[LSTM]) -> Tensor:
        K, H, N = len(U), U.shape[2] // 2, share.shape[2]
        path = diagonals(R, C, N // (R * C))
        a, states = torch.empty_like(share), share.new_empty(step.states, K, H, N)
        before = share.new_empty(step.states, K, 2 * H, N)  # the neighbours above, then those to the left
        ctx.sizes = [at.columns for at in path]
        pieces = (share, a, states, before)
        last: Tensor | None = None
        for at, x, here, now, around in zip(path, *(p.split(ctx.sizes, dim=-1) for p in pieces), strict=True):
            around[:, :, :H, : at.below.start] = 0  # outside the grid
            around[:, :, H:, at.right.stop :] = 0
            if last is not None:
                around[:, :, :H, at.below] = last[..., at.above]
                around[:, :, H:, at.right] = last[..., at.left]
            torch.baddbmm(x, U, around[0], out=here)
            step.forward(here, now, around[-1])
            last = now
        ctx.save_for_backward(U, a, states, before)
        ctx.path, ctx.step = path, step
        return states[0].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        U, a, states, before = ctx.saved_tensors
        H = states.shape[2]
        d_states, da = torch.zeros_like(states), torch.empty_like(a)
        d_states[0] = grads[0]
        pieces = [p.split(ctx.sizes, dim=-1) for p in (d_states, a, states, before, da)]
        turned = U.transpose(1, 2)
        for k in reversed(range(len(ctx.path))):
            at = ctx.path[k]
            d_now, here, now, around, slopes = (piece[k] for piece in pieces)
            ctx.step.backward(d_now, here, now, around[-1], slopes)
            if not k:
                break
            d_around, d_last = turned @ slopes, pieces[0][k - 1]
            d_last[0][..., at.above] += d_around[:, :H, at.below]
            d_last[0][..., at.left] += d_around[:, H:, at.right]
            if ctx.step is LSTM:
                dc, f = d_now[1], here[:, 2 * H : 4 * H]
                d_last[1][..., at.above].addcmul_(dc[..., at.below], f[:, :H, at.below])
                d_last[1][..., at.left].addcmul_(dc[..., at.right], f[:, H:, at.right])
        return da, da @ before[0].transpose(1, 2), None, None, None
