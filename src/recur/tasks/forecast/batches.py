"""What a forecaster learns from: windows of rows, drawn anew in every epoch from (seed, epoch) alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor

from recur.data.text.stream import FULL_BATCH, ProcessShard
from recur.tasks.forecast.rows import Rows

EPOCH = 50
"""Batches that an epoch has at least: it passes over a short series several times."""


class Windows(NamedTuple):
    """A batch: the rows, and the last steps of the windows."""

    rows: Rows
    which: Tensor
    """(B,)"""
    ends: Tensor
    """(B,)"""
    back: int
    """Steps in each."""


@dataclass(frozen=True)
class WindowBatches:
    """Windows that end at steps first … last − 1 of each row, one in `stride`, from another place in every epoch."""

    rows: Rows
    first: Sequence[int]
    last: Sequence[int]
    back: int
    batch: int
    seed: int
    stride: int = 1
    balance: float = 0.0
    share: ProcessShard = FULL_BATCH

    def shared(self, share: ProcessShard) -> Self:
        return replace(self, share=share)

    @property
    def quotas(self) -> np.ndarray:
        """(R,): how many windows of each row an epoch has."""
        counts = np.maximum(np.subtract(self.last, self.first), 0)
        if not counts.any():
            return counts
        shares = np.where(counts > 0, counts, 1) ** (1.0 - self.balance) * (counts > 0)
        total = max(counts.sum() / self.stride, EPOCH * self.batch)
        return np.where(counts > 0, np.maximum(np.round(shares * total / shares.sum()), 1), 0).astype(np.int64)

    def __len__(self) -> int:
        return -(-int(self.quotas.sum()) // self.batch)

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[Windows]:
        draw = np.random.default_rng((self.seed, epoch))
        which, ends = [], []
        for row, quota in enumerate(self.quotas):
            if quota:
                count = self.last[row] - self.first[row]
                order = np.concatenate([draw.permutation(count) for _ in range(-(-quota // count))])[:quota]
                which.append(np.full(quota, row))
                ends.append(self.first[row] + order)
        order = draw.permutation(sum(map(len, which)))
        rows, steps = np.concatenate(which)[order], np.concatenate(ends)[order]
        for k in range(skip, len(self)):
            part = slice(k * self.batch, (k + 1) * self.batch)
            of, to = (torch.from_numpy(found[part][self.share.each()]) for found in (rows, steps))
            yield Windows(self.rows, of, to, self.back) if len(of) else cast(Windows, None)
