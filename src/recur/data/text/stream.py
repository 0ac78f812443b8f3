"""Batches of token ids for truncated backpropagation: parallel lanes that continue from batch to batch, or random
windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from recur.errors import OptionError, TextError, unknown

Ids = NDArray[np.integer]
"""Integers: token ids, counts, indices."""
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


class ProcessShard(NamedTuple):
    """Part of every batch that one process handles."""

    rank: int = 0
    of: int = 1

    def lanes(self, rows: int) -> slice:
        """Return a contiguous slice of rows, for state that continues from batch to batch."""
        return slice(rows * self.rank // self.of, rows * (self.rank + 1) // self.of)

    def each(self) -> slice:
        """Return every n-th row, for examples sorted by length: every process gets long ones."""
        return slice(self.rank, None, self.of)


FULL_BATCH = ProcessShard()


PARTITIONS = ("sequential", "random")

FEW_LENGTHS = 40
"""Windows of at least this many steps vary in multiples of five."""


class BatchPosition(NamedTuple):
    """Position of a batch in the text: rows of equal length, each with its own start."""

    starts: Ids
    """(B,)"""
    steps: int
    fresh: bool
    """Whether the rows do not continue those of the previous batch."""


class Batch(NamedTuple):
    """Batch of inputs x and targets y.

    >>> stream = recur.data.text.Stream(np.arange(13), batch=2, window=3)
    >>> batch = next(iter(stream.batches(epoch=0)))
    >>> batch.x.tolist(), batch.y.tolist()              # y is x, one step later
    ([[0, 1, 2], [6, 7, 8]], [[1, 2, 3], [7, 8, 9]])
    """

    x: Ids
    """(B, T), int64."""
    y: Ids
    """(B, T): x shifted by one token."""
    fresh: Mask
    """(B,), bool: whether the lane does not continue the previous batch."""
    at: Ids
    """(B,): position of the first token of each row in the text."""


@dataclass(frozen=True)
class Stream:
    """Ids split into batches of B lanes and windows of T steps.

    >>> stream = recur.data.text.Stream(np.arange(13), batch=2, window=3)
    >>> [batch.x[0].tolist() for batch in stream.batches(epoch=0)]      # the first lane reads on
    [[0, 1, 2], [3, 4, 5]]
    """

    ids: Ids
    batch: int
    window: int
    partition: str = "sequential"
    seed: int = 0
    jitter: bool = False
    """Vary the length of sequential windows: mostly near `window`, sometimes near half of it."""
    share: ProcessShard = FULL_BATCH
    """Lanes that this process reads."""
    first: int | None = None
    """Id that rows without a state read in place of their first token, such as <bos>."""

    def __post_init__(self) -> None:
        if self.batch < 1 or self.window < 1:
            raise OptionError(f"batch and window must be at least 1, got {self.batch} and {self.window}")
        if self.partition not in PARTITIONS:
            raise OptionError(unknown("partition", self.partition, PARTITIONS))
        need = self.batch + 1 if self.partition == "sequential" else self.batch * self.window + 1
        if len(self.ids) < need:
            raise TextError(
                f"the text has {len(self.ids)} tokens, and a batch of {self.batch} {self.partition} windows "
                f"of {self.window} needs {need}; lower the batch or the window, or bring more text"
            )

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[Batch]:
        """Yield one epoch, without its first `skip` batches."""
        return map(self._cut, self.places(epoch, skip))

    def places(self, epoch: int = 0, skip: int = 0) -> Iterator[BatchPosition]:
        """Yield the positions of these batches."""
        if self.partition == "sequential":
            return self._sequential(epoch, skip)
        return self._random(epoch, skip)

    def shared(self, share: ProcessShard) -> Self:
        """Return the stream with the lanes of one process."""
        if self.batch < share.of:
            raise OptionError(
                f"a batch of {self.batch} lanes is too small for {share.of} processes: raise --batch-size"
            )
        return replace(self, share=share)

    def __len__(self) -> int:
        """Return the number of batches of an epoch; approximate for random windows."""
        if self.partition == "sequential":
            return -(-self._lane() // self.window)
        return (len(self.ids) - self.window) // (self.window * self.batch) or 1

    def _lane(self) -> int:
        """Return the number of predictions per lane; at most B − 1 ids are left over."""
        return (len(self.ids) - 1) // self.batch

    def _sequential(self, epoch: int, skip: int) -> Iterator[BatchPosition]:
        lane = self._lane()
        starts = np.arange(self.batch) * lane
        begin = 0
        for k, length in enumerate(self._lengths(epoch)):
            end = min(begin + length, lane)
            if k >= skip:
                yield BatchPosition(starts + begin, end - begin, fresh=k == 0)
            begin = end
            if begin == lane:
                return

    def _lengths(self, epoch: int) -> Iterator[int]:
        """Yield window lengths as in Merity et al. 2018, so that no token is always at the edge of a window."""
        draw = np.random.default_rng((self.seed, epoch, 1))
        while True:
            if self.jitter:
                around = self.window if draw.random() < 0.95 else self.window / 2
                length = draw.normal(around, 5)
                if self.window >= FEW_LENGTHS:
                    length = 5 * round(length / 5)  # few lengths: on a GPU each is recorded once
                yield max(min(5, self.window), round(length))
            else:
                yield self.window

    def _random(self, epoch: int, skip: int) -> Iterator[BatchPosition]:
        draw = np.random.default_rng((self.seed, epoch))
        slack = len(self.ids) - 1 - self.batch * self.window
        offset = int(draw.integers(min(self.window, slack + 1)))
        windows = (len(self.ids) - 1 - offset) // self.window
        starts = offset + draw.permutation(windows) * self.window
        for k in range(skip, windows // self.batch):
            yield BatchPosition(starts[k * self.batch : (k + 1) * self.batch], self.window, fresh=True)

    def _cut(self, place: BatchPosition) -> Batch:
        starts, steps, fresh = place.starts[self.share.lanes(self.batch)], place.steps, place.fresh
        rows = np.stack([self.ids[start : start + steps + 1] for start in starts]).astype(np.int64)
        if place.fresh and self.first is not None:
            rows[:, 0] = self.first
        return Batch(rows[:, :-1], rows[:, 1:], np.full(len(starts), fresh), starts.astype(np.int64))
