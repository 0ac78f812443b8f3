"""Functions that layers share: dropout, MLPs, and cross-entropy that does not hold all logits in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, dropout, linear
from torch.types import Device

from recur.compat import in_transform
from recur.errors import OptionError


def fast_dropout(x: Tensor, p: float) -> Tensor:
    """Apply dropout with probability p; kept entries are divided by 1 − p.

    On the CPU the mask is made of 16 random bits per entry. Drawing whole 64-bit words is faster than torch's Bernoulli
    draws, which take a tenth of the training time of a small network. p is rounded to the nearest 1/65536.
    """
    dropped = round(p * 65536)
    transformed = torch.compiler.is_compiling() or in_transform()
    if x.device.type != "cpu" or transformed or dropped in (0, 65536):
        return dropout(x, p)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= dropped - 32768).to(x.dtype).div_(1 - p)


def sequence_dropout(x: Tensor, p: float, *, training: bool, variational: bool) -> Tensor:
    """Apply dropout to x (B, T, D) while training.

    variational   one mask for all steps of a sequence (Gal and Ghahramani 2016); else one mask per step
    """
    if not (training and p):
        return x
    if not variational:
        return fast_dropout(x, p)
    return x * fast_dropout(x.new_ones(x.shape[0], 1, x.shape[2]), p)


LOGITS_CHUNK_BYTES = {"cpu": 32 << 20, "cuda": 64 << 20}
"""Size of a chunk of float32 logits: on a CPU large, so that V is read seldom; on a GPU about the size of its L2 cache.
"""

MIN_CHUNK_ROWS = 16
"""Least number of rows per chunk; fewer rows would read V too often."""


def linear_cross_entropy(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float = 0.0, chunk: int | None = None
) -> Tensor:
    """Return the mean cross-entropy of the logits h Vᵀ + c without holding all logits in memory.

    h         (N, H)
    weight    V, (K, H)
    bias      c, (K,)
    targets   (N,)
    chunk     bytes of logits held at a time; chosen by device if not given. If all logits fit, this is torch's
              cross_entropy. Under autocast, products have the autocast dtype and sums are float32.
    """
    N, K = len(h), len(weight)
    limit = LOGITS_CHUNK_BYTES.get(h.device.type, LOGITS_CHUNK_BYTES["cpu"]) if chunk is None else chunk
    if limit >= 4 * N * K:
        return cross_entropy(linear(h, weight, bias), targets, label_smoothing=smoothing)
    kind = h.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else h.dtype
    if h.dtype == torch.float64:
        dtype = h.dtype
    rows = max(MIN_CHUNK_ROWS, limit // (4 * K))
    rows = -(-N // -(-N // rows))  # as many in each chunk
    loss: Tensor = _LinearCrossEntropy.apply(h, weight, bias, targets, smoothing, rows, dtype)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy by chunks of rows.

    The forward pass computes the gradients while the logits of a chunk exist; the backward pass multiplies them by ∂L.
    """

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


def make_mlp(width: int, out: int, depth: int, device: Device, dtype: torch.dtype | None) -> nn.Sequential | None:
    """Return an MLP with `depth` tanh layers from `width` to `out` units, or None if depth is 0."""
    if not depth:
        return None
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, out, device=device, dtype=dtype), nn.Tanh()]
        width = out
    return nn.Sequential(*layers)


def make_between_mlps(
    widths: Sequence[int], depth: int, device: Device, dtype: torch.dtype | None
) -> nn.ModuleList | None:
    """Return one MLP after each recurrent layer but the last, for outputs of these widths; None if depth is 0."""
    if not depth:
        return None
    if len(widths) == 1:
        raise OptionError("depth.between needs at least two layers, got one")
    mlps = (make_mlp(width, width, depth, device, dtype) for width in widths[:-1])
    return nn.ModuleList(mlp for mlp in mlps if mlp is not None)


def reset_mlp(mlp: nn.Module | None) -> None:
    """Draw weights by Glorot initialisation; set biases to zero."""
    for layer in () if mlp is None else mlp.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def apply_mlp(mlp: nn.Module | None, x: Tensor, padding: Tensor | None) -> Tensor:
    """Apply an MLP if there is one. Padded steps are zero before and after it."""
    if mlp is None:
        return x
    if padding is None:
        return mlp(x)  # type: ignore[no-any-return]
    return mlp(x.masked_fill(padding, 0)).masked_fill(padding, 0)  # type: ignore[no-any-return]


def padding_mask(x: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
    """Return a mask (B, T, 1) that is True at steps beyond the length of their row."""
    ends = torch.as_tensor(lengths, device=x.device)
    return (torch.arange(x.shape[1], device=x.device) >= ends[:, None])[..., None]
