"""Ids of many shards as one long array, of which only what is asked for is read, and what comes next is read ahead."""

from __future__ import annotations

import bisect
import itertools
import mmap
from collections.abc import Iterable
from typing import Any

import numpy as np

from recur.data.text.arrays import Ids

AHEAD = 1 << 20
"""Bytes of a shard that the system is asked for before they are needed."""


class Shards:
    """Memory maps one behind the other; slices of it are arrays, and `[::-1]` is the same from the end."""

    def __init__(self, parts: Iterable[Ids], backward: bool = False) -> None:
        self.parts = [part for part in parts if len(part)]
        self.edges = [0, *itertools.accumulate(map(len, self.parts))]
        self.backward = backward
        self._asked = [-1] * len(self.parts)

    def __len__(self) -> int:
        return self.edges[-1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype if self.parts else np.dtype(np.int32)

    def __getitem__(self, at: slice) -> Any:
        begin, end, step = at.indices(len(self))
        if step == -1 and (at.start, at.stop) == (None, None):
            return Shards(self.parts, not self.backward)
        if step != 1:
            raise IndexError(f"a text of many shards is read forwards in slices, or turned round whole, not by {at}")
        if self.backward:
            return self._read(len(self) - max(begin, end), len(self) - begin)[::-1]
        return self._read(begin, max(begin, end))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Ids:
        found: Ids = self[:]
        return found if dtype is None else found.astype(dtype)

    def _read(self, begin: int, end: int) -> Ids:
        found = []
        k = max(bisect.bisect_right(self.edges, begin) - 1, 0)
        while k < len(self.parts) and self.edges[k] < end:
            low, high = max(begin - self.edges[k], 0), min(end - self.edges[k], len(self.parts[k]))
            found.append(self.parts[k][low:high])
            self._read_ahead(k, low if self.backward else high)
            k += 1
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.empty(0, self.dtype)

    def _read_ahead(self, k: int, at: int) -> None:
        """Once for every such part of a shard, whichever lane comes to it; the system then reads while we compute."""
        part = self.parts[k]
        step = AHEAD // part.dtype.itemsize
        block = at // step + (-1 if self.backward else 1)
        kept = getattr(part, "_mmap", None)
        if kept is None or block == self._asked[k] or not 0 <= block * step < len(part) or not hasattr(kept, "madvise"):
            return
        self._asked[k] = block
        kept.madvise(mmap.MADV_WILLNEED, block * AHEAD, min(AHEAD, len(kept) - block * AHEAD))
