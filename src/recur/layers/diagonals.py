"""Grids along their anti-diagonals, forward and back, with gradients by hand.

The Q corners come first, then units, and points last: (Q, H, n, B). So a diagonal is one batched product for all
corners, a gate is one piece of memory, and the neighbours of a diagonal's points are two slices of the diagonal before,
which has a point of zeros at either end for what lies outside the grid. In the backward pass each diagonal adds its
gradient to that of the one before, and its part of ∂M is computed while ∂a is in the cache. M = [W_1 W_2 U].

    net    h = tanh(a)                          ∂a = (1 − h²) ∂h
    lstm   c = i ⊙ g + f_1 ⊙ c_1 + f_2 ⊙ c_2    ∂c = ∂c' + ∂h ⊙ o ⊙ (1 − tanh²(c))
           h = o ⊙ tanh(c)                      ∂i = ∂c ⊙ g   ∂o = ∂h ⊙ tanh(c)   ∂f_k = ∂c ⊙ c_k   ∂g = ∂c ⊙ i
                                                ∂c_k = ∂c ⊙ f_k         (∂c': from the next diagonals)
    both   a = M [h_1; h_2; x]                  ∂[h_1; h_2; x] = Mᵀ ∂a     ∂M = Σ ∂a [h_1; h_2; x]ᵀ
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

_sigmoid_back = torch.ops.aten.sigmoid_backward
_tanh_back = torch.ops.aten.tanh_backward


class Diagonal(NamedTuple):
    points: slice
    """Of all R · C, row by row: from one to the next it is a row down and a column back."""
    n: int
    above: int
    """Where the neighbours above begin in the padded diagonal before; those to the left begin one later."""


def diagonals(R: int, C: int) -> list[Diagonal]:
    found = []
    top_before = 0
    for d in range(R + C - 1):
        top, bottom = max(0, d - C + 1), min(R - 1, d)
        first, n, stride = top * C + d - top, bottom - top + 1, max(C - 1, 1)
        found.append(Diagonal(slice(first, first + (n - 1) * stride + 1, stride), n, top - top_before))
        top_before = top
    return found


class Pointwise(Protocol):
    """The pointwise part of a composition: from a (Q, G·H, n, B) to the states (states, Q, H, n, B), and back."""

    states: int

    @staticmethod
    def forward(a: Tensor, states: Tensor, above: Tensor, left: Tensor) -> None: ...

    @staticmethod
    def backward(da: Tensor, d_states: Tensor, a: Tensor, states: Tensor, above: Tensor, left: Tensor) -> None: ...


class Net:
    """The pointwise part: a (Q, H, n, B) to the states (1, Q, H, n, B), and back."""

    states = 1

    @staticmethod
    def forward(a: Tensor, states: Tensor, above: Tensor, left: Tensor) -> None:
        _tanh(a, out=states[0])

    @staticmethod
    def backward(da: Tensor, d_states: Tensor, a: Tensor, states: Tensor, above: Tensor, left: Tensor) -> None:
        _tanh_back(d_states[0], states[0], grad_input=da)


class LSTM:
    """The pointwise part: a (Q, 5H, n, B), of i, o, f_1, f_2 and g, to h and c (2, Q, H, n, B), and back."""

    states = 2

    @staticmethod
    def forward(a: Tensor, states: Tensor, above: Tensor, left: Tensor) -> None:
        """σ and tanh of a in place."""
        (h, c), H = states, states.shape[2]
        a[:, : 4 * H].sigmoid_()
        i, o, f_1, f_2, g = a.split(H, dim=1)
        _tanh(g, out=g)
        torch.mul(i, g, out=c).addcmul_(f_1, above[1]).addcmul_(f_2, left[1])
        torch.mul(o, _tanh(c), out=h)

    @staticmethod
    def backward(da: Tensor, d_states: Tensor, a: Tensor, states: Tensor, above: Tensor, left: Tensor) -> None:
        """∂a into `da`; ∂c into `d_states`, where the neighbours find it."""
        H = states.shape[2]
        (i, o, _, _, g), (di, do, df_1, df_2, dg) = a.split(H, dim=1), da.split(H, dim=1)
        (dh, dc), t = d_states, _tanh(states[1])
        dc += _tanh_back(dh * o, t)
        torch.mul(dc, g, out=di)
        torch.mul(dh, t, out=do)
        torch.mul(dc, above[1], out=df_1)
        torch.mul(dc, left[1], out=df_2)
        torch.mul(dc, i, out=dg)
        d_gates, gates = da[:, : 4 * H], a[:, : 4 * H]
        _sigmoid_back(d_gates, gates, grad_input=d_gates)
        _tanh_back(dg, g, grad_input=dg)


def _tanh(a: Tensor, out: Tensor | None = None) -> Tensor:
    """As 2 σ(2a) − 1 where there are many: PyTorch's tanh takes five times as long as its σ."""
    if a.numel() < 4096:
        return torch.tanh(a, out=out)
    return torch.mul(a, 2, out=out).sigmoid_().mul_(2).sub_(1)


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    path: list[Diagonal]
    step: Pointwise


class DiagonalScan(torch.autograd.Function):
    """x (Q, D, R·C, B), point by point, and M (Q, G·H, 2H + D) to the states h (Q, H, R·C, B) of all points."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, M: Tensor, R: int, C: int, step: Pointwise) -> Tensor:
        Q, D, N, B = x.shape
        H = (M.shape[2] - D) // 2
        path = diagonals(R, C)
        h = x.new_empty(Q, H, N, B)
        last = x.new_zeros(step.states, Q, H, 2, B)
        saved = [last]
        for at in path:
            above, left = last.narrow(3, at.above, at.n), last.narrow(3, at.above + 1, at.n)
            inputs = torch.cat([above[0], left[0], x[:, :, at.points]], dim=1)
            a = torch.bmm(M, inputs.flatten(2)).unflatten(2, (at.n, B))
            last = x.new_zeros(step.states, Q, H, at.n + 2, B)
            now = last.narrow(3, 1, at.n)
            step.forward(a, now, above, left)
            h[:, :, at.points] = now[0]
            saved += inputs, a, last
        ctx.save_for_backward(M, *saved)
        ctx.path, ctx.step = path, step
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        M, *saved = ctx.saved_tensors
        (Q, H, N, B), step, transposed = grads[0].shape, ctx.step, M.transpose(1, 2)
        D = M.shape[2] - 2 * H
        dx, dM = M.new_empty(Q, D, N, B), torch.zeros_like(M)
        states = saved.pop()
        d_states = torch.zeros_like(states)
        for at in reversed(ctx.path):
            a, inputs, last = saved.pop(), saved.pop(), saved.pop()
            above, left = last.narrow(3, at.above, at.n), last.narrow(3, at.above + 1, at.n)
            d_now, da = d_states.narrow(3, 1, at.n), torch.empty_like(a)
            d_now[0].add_(grads[0][:, :, at.points])
            step.backward(da, d_now, a, states.narrow(3, 1, at.n), above, left)
            slopes = da.flatten(2)
            dM.baddbmm_(slopes, inputs.flatten(2).transpose(1, 2))
            d_inputs = torch.bmm(transposed, slopes).unflatten(2, (at.n, B))
            states, d_states = last, torch.zeros_like(last)
            d_above, d_left = d_states.narrow(3, at.above, at.n), d_states.narrow(3, at.above + 1, at.n)
            d_above[0].add_(d_inputs.narrow(1, 0, H))
            d_left[0].add_(d_inputs.narrow(1, H, H))
            dx[:, :, at.points] = d_inputs.narrow(1, 2 * H, D)
            if step.states == 2:  # c is carried beside h
                d_above[1].addcmul_(d_now[1], a.narrow(1, 2 * H, H))
                d_left[1].addcmul_(d_now[1], a.narrow(1, 3 * H, H))
        return dx, dM, None, None, None
