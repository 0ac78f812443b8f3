"""Logs of a run: one JSON object per line, append-only; a checkpoint stores how many bytes of each are complete."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path

from recur.errors import RunError
from recur.runs.manifest import LogExtent, parse_jsonl, parse_object, sha256
from recur.runs.safe_dir import SafeDir
from recur.utils.limits import JSON_BYTES, LOG_RECORDS
from recur.utils.types import JsonObject

TAIL = LOG_RECORDS
"""Bytes of a log's newest records, about 200: even of empty lines there are then at most LOG_RECORDS."""


class Log:
    """Append-only log with the SHA-256 of what was written."""

    def __init__(self, folder: SafeDir, name: str) -> None:
        self.dir, self.name, self.path = folder, name, folder.path / name
        self._length, self._sha = 0, hashlib.sha256()

    @property
    def extent(self) -> LogExtent:
        """Extent of what was written so far."""
        return self._length, self._sha.hexdigest()

    def append(self, entry: Mapping[str, object]) -> None:
        line = (json.dumps(entry) + "\n").encode()
        self.dir.append(self.name, line)
        self._length += len(line)
        self._sha.update(line)

    def read(self, known: LogExtent | None = None) -> list[JsonObject]:
        """Return all entries; skip a line that a killed process left incomplete, and refuse other damage."""
        content = self._content()
        if known is not None and not _begins_with(content, known):
            raise RunError(f"{self.path} is damaged: it does not match its checksum")
        return parse_jsonl(content, refuse=str(self.path))

    def rewind(self, to: LogExtent) -> str | None:
        """Remove the entries after a checkpoint, which are written again; return a message if the log is damaged."""
        try:
            content = self._content()
        except RunError:
            content = b""
        whole = _begins_with(content, to)
        kept = content[: to[0]] if whole else b""
        self.begin(kept)
        return None if whole else f"{self.path} is damaged, and starts again empty"

    def begin(self, content: bytes = b"") -> None:
        """Replace the log by this content."""
        self.dir.write(self.name, content)
        self._length, self._sha = len(content), hashlib.sha256(content)

    def _content(self) -> bytes:
        try:
            return self.dir.read(self.name, JSON_BYTES)
        except FileNotFoundError:
            return b""


def _begins_with(content: bytes, known: LogExtent) -> bool:
    length, digest = known
    return len(content) >= length and sha256(content[:length]) == digest


def read_json(path: Path) -> JsonObject | None:
    """Return the JSON object in a file of a run; None if there is none."""
    try:
        return parse_object(SafeDir(path.parent).read(path.name, JSON_BYTES))
    except (OSError, RunError):
        return None


def read_jsonl(path: Path) -> list[JsonObject]:
    """Return the records of a log of a run, at most LOG_RECORDS; a line that is not a JSON object is skipped."""
    try:
        return parse_jsonl(SafeDir(path.parent).read(path.name, JSON_BYTES))
    except (OSError, RunError):
        return []


def read_tail(path: Path, most: int = TAIL) -> list[JsonObject]:
    """Return the newest records of a log of a run, from its last bytes alone: a log may have any number of lines."""
    try:
        content, size, _ = SafeDir(path.parent).read_from(path.name, -most, most)
    except (OSError, RunError):
        return []
    if size > most:
        content = content[content.find(b"\n") + 1 :]  # without the line whose beginning was not read
    return parse_jsonl(content[: content.rfind(b"\n") + 1])


NAME = "progress.jsonl"
POINTS = 2000
"""Points of the curve: they are at least 1/2000 of the training time apart, half a second after 17 minutes."""


class Progress:
    """Training loss of a run over time, for who watches it."""

    def __init__(self, folder: SafeDir) -> None:
        self.dir = folder
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
        self.dir.append(NAME, line.encode(), flushed=False)

    def rewind(self, step: int) -> None:
        """Remove the points after a step, which is trained again."""
        try:
            found = parse_jsonl(self.dir.read(NAME, JSON_BYTES)) if step else []
        except FileNotFoundError:
            found = []
        kept = [entry for entry in found if isinstance(known := entry.get("step"), int) and known <= step]
        self.dir.write(NAME, "".join(json.dumps(entry) + "\n" for entry in kept).encode())
        self._there = True
