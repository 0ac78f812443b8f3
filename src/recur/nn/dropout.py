"""Dropout along a sequence."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import dropout


def drop(x: Tensor, p: float) -> Tensor:
    """x with each entry dropped with probability p, and what stays divided by 1 − p.

    On the CPU from 16 random bits an entry: whole words are drawn faster than torch throws its coins, which
    would be a tenth of a small network's training. An entry goes with p to the nearest 65536th.
    """
    dropped = round(p * 65536)
    transformed = torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None
    if x.device.type != "cpu" or transformed or dropped in (0, 65536):
        return dropout(x, p)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= dropped - 32768).to(x.dtype).div_(1 - p)


def drop_steps(x: Tensor, p: float, *, training: bool, variational: bool) -> Tensor:
    """(B, T, D) with entries dropped: one mask for a whole sequence (Gal and Ghahramani 2016), or one for each step."""
    if not (training and p):
        return x
    if not variational:
        return drop(x, p)
    return x * drop(x.new_ones(x.shape[0], 1, x.shape[2]), p)
