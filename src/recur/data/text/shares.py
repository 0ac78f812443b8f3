"""A batch shared out among processes that train together: which rows are whose."""

from __future__ import annotations

from typing import NamedTuple


class Share(NamedTuple):
    """One process's part of every batch."""

    rank: int = 0
    of: int = 1

    def lanes(self, rows: int) -> slice:
        """Rows beside each other, for what goes on from batch to batch: the parts of all, one behind the other, are the
        whole."""
        return slice(rows * self.rank // self.of, rows * (self.rank + 1) // self.of)

    def each(self) -> slice:
        """Every so many rows, for examples: of a batch in the order of their lengths, every part has long ones."""
        return slice(self.rank, None, self.of)


WHOLE = Share()
