"""progress.jsonl: the training loss as it goes, for whoever watches.

A point is the mean over the steps since the one before, written when it is known; nothing is computed from it, so it is
no part of what the manifest vouches for. The longer a run lasts the further apart its points: a day of training is a
few thousand lines.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from recur.run.logs import MOST, parse_jsonl
from recur.run.place import Place

NAME = "progress.jsonl"
POINTS = 2000
"""Points are at least 1/2000 of the seconds trained apart, which is half a second after 17 minutes."""


class Progress:
    """The points of a run."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._there = False
        self._last = -1.0

    def add(self, entry: Mapping[str, object]) -> None:
        seconds = entry["seconds"]
        assert isinstance(seconds, float)
        if self._last >= 0 and seconds - self._last < seconds / POINTS:
            return
        self._last = seconds
        if not self._there:
            self.rewind(0)
        line = json.dumps({**entry, "at": round(time.time(), 3)}) + "\n"
        self.place.append(NAME, line.encode(), flushed=False)

    def rewind(self, step: int) -> None:
        """What was written behind a step is trained again."""
        try:
            found = parse_jsonl(self.place.read(NAME, MOST)) if step else []
        except FileNotFoundError:
            found = []
        kept = [entry for entry in found if isinstance(known := entry.get("step"), int) and known <= step]
        self.place.write(NAME, "".join(json.dumps(entry) + "\n" for entry in kept).encode())
        self._there = True
