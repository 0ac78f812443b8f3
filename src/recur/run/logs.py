"""Logs of a run: one JSON object a line, added to and never changed; a checkpoint knows how much of them is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recur.errors import RunError
from recur.run.manifest import Extent, sha256
from recur.run.place import Place
from recur.typedefs import JsonObject

MOST = 1 << 28
"""Bytes of a file of JSON, at most."""


class Log:
    """One of them."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name, self.path = place, name, place.path / name
        self._length, self._sha = 0, hashlib.sha256()

    @property
    def extent(self) -> Extent:
        """What was written so far."""
        return self._length, self._sha.hexdigest()

    def append(self, entry: Mapping[str, object]) -> None:
        line = (json.dumps(entry) + "\n").encode()
        self.place.append(self.name, line)
        self._length += len(line)
        self._sha.update(line)

    def read(self, known: Extent | None = None) -> list[JsonObject]:
        """All entries; a line that a killed process left half-written is passed over, and other damage refused."""
        content = self._content()
        if known is not None and not _begins_with(content, known):
            raise RunError(f"{self.path} is damaged: it is not what this run wrote")
        return parse_jsonl(content)

    def rewind(self, to: Extent) -> str | None:
        """Back to what was written by then: what was measured behind it will be measured again. Damage is said."""
        try:
            content = self._content()
        except RunError:
            content = b""
        whole = _begins_with(content, to)
        kept = content[: to[0]] if whole else b""
        self.begin(kept)
        return None if whole else f"{self.path} is damaged, and begins anew"

    def begin(self, content: bytes = b"") -> None:
        """With this content, and nothing behind it."""
        self.place.write(self.name, content)
        self._length, self._sha = len(content), hashlib.sha256(content)

    def _content(self) -> bytes:
        try:
            return self.place.read(self.name, MOST)
        except FileNotFoundError:
            return b""


def _begins_with(content: bytes, known: Extent) -> bool:
    length, digest = known
    return len(content) >= length and sha256(content[:length]) == digest


def read_json(path: Path) -> JsonObject | None:
    """The object of a file of a run, or None where there is none."""
    try:
        return parse_object(Place(path.parent).read(path.name, MOST))
    except (OSError, RunError):
        return None


def parse_object(content: bytes) -> JsonObject | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_jsonl(path: Path) -> list[JsonObject]:
    """The objects of a file of JSON lines of a run; what is no whole object is passed over."""
    try:
        return parse_jsonl(Place(path.parent).read(path.name, MOST))
    except (OSError, RunError):
        return []


def parse_jsonl(content: bytes) -> list[JsonObject]:
    found: list[Any] = []
    for line in content.decode(errors="replace").splitlines():
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return [entry for entry in found if isinstance(entry, dict)]
