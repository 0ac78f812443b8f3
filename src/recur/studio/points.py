"""The points of a run's training loss as they come, and curves of no more points than a screen has."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recur.errors import RecurError
from recur.run.logs import parse_jsonl
from recur.run.place import Place
from recur.run.progress import NAME
from recur.typedefs import JsonObject

MOST = 1000
"""Points of a curve."""
PIECE = 1 << 24
"""Bytes that are read at once."""
LINE = 4096
"""Bytes in which the last line is."""
RECENT = 20
"""Points by which the time that is left is told."""


class Tail:
    """The points of one run; what was read is not read again."""

    def __init__(self, path: Path) -> None:
        self.place = Place(path)
        self.points: list[JsonObject] = []
        self.begun = 0
        """Counts how often the file was written anew, as it is when a run goes on from a checkpoint."""
        self._read, self._file = 0, 0
        self._lock = threading.Lock()

    def update(self) -> list[JsonObject]:
        with self._lock:
            try:
                while self._more():
                    pass
            except (OSError, RecurError):
                self.points = []
            return self.points

    def _more(self) -> bool:
        content, size, file = self.place.read_from(NAME, self._read, PIECE)
        if file != self._file or size < self._read:
            self.begun += self._file != 0
            self._file, self._read, self.points = file, 0, []
            return size > 0
        whole = content[: content.rfind(b"\n") + 1]
        if whole:
            self.points = [*self.points, *parse_jsonl(whole)]
            self._read += len(whole)
        return len(content) == PIECE and bool(whole)


def last_point(path: Path) -> JsonObject:
    """The newest point of a run, without the others; nothing where there is none."""
    try:
        content, _, _ = Place(path).read_from(NAME, -LINE, LINE)
    except (OSError, RecurError):
        return {}
    found = parse_jsonl(content[: content.rfind(b"\n") + 1])
    return found[-1] if found else {}


def seconds_left(points: Sequence[JsonObject]) -> float | None:
    """Until the budget is spent, if it goes on as lately; None where that cannot be said."""
    try:
        times = [(float(point["at"]), float(point["progress"])) for point in points[-RECENT:]]
    except (KeyError, TypeError, ValueError):
        return None
    if len(times) < 2 or not times[-1][1] > times[0][1]:
        return None
    (begin, before), (end, now) = times[0], times[-1]
    return max(0.0, (1 - now) * (end - begin) / (now - before))


def thinned(values: Sequence[float | None], most: int = MOST) -> list[int]:
    """Which of these to draw: all, or of each of so many stretches the least and the largest, so that no peak is lost;
    and the ends."""
    known = [k for k, value in enumerate(values) if value is not None]
    if len(known) <= most:
        return known
    y = np.array([values[k] for k in known], dtype=float)
    edges = np.linspace(0, len(known), (most - 2) // 2 + 1).astype(int)
    kept = {0, len(known) - 1}
    for begin, end in itertools.pairwise(edges.tolist()):
        kept |= {begin + int(y[begin:end].argmin()), begin + int(y[begin:end].argmax())}
    return [known[k] for k in sorted(kept)]
