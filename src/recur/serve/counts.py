"""What the engine has done, for /metrics."""

from __future__ import annotations


class Counts:
    """What was done since the start; whoever reads them may see the last batch half counted."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.batches = self.rows = 0
        self.seconds = 0.0
        self.sizes = dict.fromkeys((1, 4, 16, 64, 256, 1024, 4096, 16384), 0)
        """Batches of at most so many rows."""

    def batch(self, rows: int, seconds: float) -> None:
        self.batches += 1
        self.rows += rows
        self.seconds += seconds
        for size in self.sizes:
            if rows <= size:
                self.sizes[size] += 1
