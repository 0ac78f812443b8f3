"""The loss of a softmax over many classes, without its logits in memory.

    a = V h + c        L = mean over rows of −log softmax(a)_y        ∂L/∂a = (softmax(a) − onehot(y)) / N

Logits, their softmax and its gradient would be N·K numbers each. Here rows are taken some at a time: their logits are
made, give the loss and the gradients of h, V and c, and are forgotten. What is kept for the way back has the sizes of
h, V and c. Chunks are taken in order and sums are of that order, so that the same numbers give the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, linear

CHUNK = {"cpu": 32 << 20, "cuda": 64 << 20}
"""Bytes of float32 logits at a time: on a CPU so many rows that V is read seldom, on a GPU about its L2."""

FEWEST = 16
"""Rows at a time, at least: fewer read V too often."""


def linear_cross_entropy(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float = 0.0, chunk: int | None = None
) -> Tensor:
    """The mean loss of h (N, H) under V = weight (K, H) and c = bias (K,), with targets (N,).

    `chunk` is how many bytes of logits there may be at a time; if not given, by the device. Where all of them are no
    more than that, this is PyTorch's own cross_entropy. Under autocast products are of its dtype, sums of float32.
    """
    N, K = len(h), len(weight)
    limit = CHUNK.get(h.device.type, CHUNK["cpu"]) if chunk is None else chunk
    if limit >= 4 * N * K:
        return cross_entropy(linear(h, weight, bias), targets, label_smoothing=smoothing)
    kind = h.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else h.dtype
    if h.dtype == torch.float64:
        dtype = h.dtype
    rows = max(FEWEST, limit // (4 * K))
    rows = -(-N // -(-N // rows))  # as many in each chunk
    loss: Tensor = _LinearCrossEntropy.apply(h, weight, bias, targets, smoothing, rows, dtype)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    """Gradients are found on the way forward, while the logits are there, and multiplied by ∂/∂L on the way back."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        rows: int,
        dtype: torch.dtype,
    ) -> Tensor:
        N, K = len(h), len(weight)
        wide = torch.promote_types(dtype, torch.float32)
        V, c, back = weight.to(dtype), bias.to(dtype), any(ctx.needs_input_grad)
        total = torch.zeros((), dtype=wide, device=h.device)
        dh = torch.empty_like(h, dtype=dtype) if back else None
        dV, dc = (torch.zeros_like(p, dtype=wide) if back else None for p in (weight, bias))
        with torch.autocast(h.device.type, enabled=False):
            for begin in range(0, N, rows):
                some, y = h[begin : begin + rows].to(dtype), targets[begin : begin + rows, None]
                logp = torch.addmm(c, some, V.t()).log_softmax(-1, dtype=wide)
                total -= (1 - smoothing) * logp.gather(1, y).sum()
                if smoothing:
                    total -= smoothing / K * logp.sum()
                if dh is None or dV is None or dc is None:
                    continue
                g = logp.exp_() if dtype == wide else torch.exp(logp, out=torch.empty_like(logp, dtype=dtype))
                if smoothing:
                    g -= smoothing / K
                g.scatter_add_(1, y, g.new_full(y.shape, smoothing - 1))
                dc += g.sum(0, dtype=wide)
                torch.mm(g, V, out=dh[begin : begin + rows])
                if dtype == wide:
                    dV.addmm_(g.t(), some)
                else:
                    dV += g.t() @ some
        ctx.save_for_backward(dh, dV, dc)
        ctx.dtypes = h.dtype, weight.dtype, bias.dtype
        return total / N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        N = len(ctx.saved_tensors[0])
        found = [
            (part * (above / N)).to(dtype) if wanted else None
            for part, dtype, wanted in zip(ctx.saved_tensors, ctx.dtypes, ctx.needs_input_grad, strict=False)
        ]
        return *found, None, None, None, None
