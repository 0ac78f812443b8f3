"""Weights in 8 bits: whole numbers −127 … 127, and a scale for each row.

    w[r, c] ≈ scale[r] · q[r, c]        scale[r] = max_c |w[r, c]| / 127

Every target has the same ones, and all of them compute with scale · q in float32. Matrices alone are worth it: a bias
or the moves between tags are few numbers, and stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 256
"""Numbers in a matrix from which on it is worth it."""


def is_matrix(weight: Tensor) -> bool:
    """Whether it is one of those."""
    return weight.dtype == torch.float32 and weight.dim() == 2 and weight.shape[1] > 1 and weight.numel() >= LEAST


def is_eight_bit(weight: Tensor) -> bool:
    """Whether 8 bits and scales give its numbers back: what was computed from such weights is none, and stays."""
    return is_matrix(weight) and torch.allclose(dequantised(weight), weight, rtol=1e-6, atol=0)


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 (R, C) and scales (R,) of a matrix (R, C)."""
    scale = weight.abs().amax(1) / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return (weight / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def dequantised(weight: Tensor) -> Tensor:
    """The numbers that a target computes with; others than matrices as they are."""
    if not is_matrix(weight):
        return weight
    q, scale = quantise(weight)
    return q.to(torch.float32) * scale[:, None]
