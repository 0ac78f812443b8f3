"""Batches of independent examples: shuffled by epoch, sorted by length within pools, or in their order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recur.data.text import PAD
from recur.data.text.stream import FULL_BATCH, Ids, ProcessShard

Item = TypeVar("Item")
BatchT = TypeVar("BatchT")
Numbers = npt.NDArray[np.int64]

POOL = 20
"""Number of batches in a pool whose examples are sorted by size, so that batches have little padding."""


@dataclass(frozen=True)
class Shuffled(Generic[Item, BatchT]):
    """Batches of examples in random order, grouped by size; an epoch depends on (seed, epoch) alone."""

    items: Sequence[Item]
    batch: int
    seed: int
    collate: Callable[[Sequence[Item]], BatchT]
    size: Callable[[Item], int] = lambda item: 0
    share: ProcessShard = FULL_BATCH

    def shared(self, share: ProcessShard) -> Shuffled[Item, BatchT | None]:
        return cast("Shuffled[Item, BatchT | None]", replace(self, share=share))

    def __len__(self) -> int:
        return -(-len(self.items) // self.batch)

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[BatchT]:
        draw = np.random.default_rng((self.seed, epoch))
        cuts = self.cut(self.in_pools(draw.permutation(len(self.items)), POOL * self.batch))
        for k in draw.permutation(len(cuts))[skip:]:
            rows = cuts[k][self.share.each()]
            yield self.collate([self.items[i] for i in rows]) if len(rows) else cast(BatchT, None)

    def in_pools(self, order: Numbers, pool: int) -> Numbers:
        """Return the order with each pool of `pool` examples sorted by size."""
        pools = np.split(order, range(pool, len(order), pool))
        return np.concatenate([pool[np.argsort(self.sizes[pool], kind="stable")] for pool in pools])

    @functools.cached_property
    def sizes(self) -> Numbers:
        return np.array([self.size(item) for item in self.items])

    def cut(self, order: Numbers) -> list[Numbers]:
        """Split an order into batches."""
        return np.split(order, range(self.batch, len(order), self.batch))


@dataclass(frozen=True)
class ShuffledBySize(Shuffled[Item, BatchT]):
    """Batches with at most `batch` symbols, padding included; an example with more symbols is a batch by itself."""

    def __len__(self) -> int:
        """Return the number of batches of the first epoch; other epochs differ slightly."""
        return self._first

    @functools.cached_property
    def _first(self) -> int:
        draw = np.random.default_rng((self.seed, 0))
        return len(self.cut(self.in_pools(draw.permutation(len(self.items)), POOL * self.batch)))

    def in_pools(self, order: Numbers, pool: int) -> Numbers:
        return super().in_pools(order, max(1, int(pool / self.sizes.mean())))

    def cut(self, order: Numbers) -> list[Numbers]:
        cuts, begun, longest = [], 0, 0
        for k, size in enumerate(self.sizes[order].tolist()):
            longest = max(longest, size)
            if k > begun and (k + 1 - begun) * longest > self.batch:
                cuts.append(k)
                begun, longest = k, size
        return np.split(order, cuts)


def in_order(items: Sequence[Item], rows: int, collate: Callable[[Sequence[Item]], BatchT]) -> Iterator[BatchT]:
    """Yield batches of all examples in their order, for evaluation."""
    for at in range(0, len(items), rows):
        yield collate(items[at : at + rows])


def padded(rows: Sequence[Ids], fill: int = PAD) -> tuple[Tensor, Tensor]:
    """Return ids (B, T), padded at the end with <pad> or `fill`, and their lengths (B,)."""
    lengths = torch.tensor([len(row) for row in rows])
    table = np.full((len(rows), int(lengths.max())), fill, np.int64)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return torch.from_numpy(table), lengths
