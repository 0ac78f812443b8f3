"""Manifest of a run, its files with their checksums, and its logs.

A log has one JSON object per line and is append-only; a checkpoint stores how many bytes of each log are complete.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recur.errors import RunError
from recur.runs.safe_dir import SafeDir
from recur.utils.limits import JSON_BYTES, JSON_VALUES, LOG_LINE, LOG_RECORDS, check_json, json_values
from recur.utils.types import JsonObject

DIGITS = 19
"""Digits of an integer at most: more do not fit into 64 bits, and float() of a long integer overflows."""


def parse_json(content: bytes | str, name: str = "the file") -> Any:
    """Return the value that a JSON text holds; raise ValueError or RecursionError for anything else.

    A text with more values than recur writes raises TextError before it is parsed.
    """
    check_json(name, content)
    return json.loads(content, parse_int=_integer)


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def parse_object(content: bytes | str) -> JsonObject | None:
    """Return the object that a JSON text holds; None for anything else."""
    try:
        found = parse_json(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def parse_jsonl(content: bytes, refuse: str = "") -> list[JsonObject]:
    """Return the JSON objects of lines, and skip other lines.

    Lines behind the first LOG_RECORDS, or behind JSON_VALUES values in all, are skipped without being read; `refuse`
    names the file whose extra lines are an error instead.
    """
    found: list[JsonObject] = []
    lines = values = at = 0
    while at < len(content):
        end = content.find(b"\n", at) + 1 or len(content)
        line, at = content[at : min(end, at + LOG_LINE + 1)], end
        lines, values = lines + 1, values + (json_values(line) if len(line) <= LOG_LINE else 0)
        if lines > LOG_RECORDS or values > JSON_VALUES:
            if refuse:
                raise RunError(
                    f"{refuse}: expected at most {LOG_RECORDS:,} lines of {JSON_VALUES:,} values in all, got more; "
                    "it is no log of recur: move it away"
                )
            break
        if len(line) <= LOG_LINE and (entry := parse_object(line.decode(errors="replace"))) is not None:
            found.append(entry)
    return found


def is_baseline(found: object) -> bool:
    """Return True if an entry of baselines.json has a name, a value that can be compared, and numbers as metrics."""
    return (
        isinstance(found, dict)
        and isinstance(found.get("name"), str)
        and isinstance(value := found.get("value"), int | float)
        and not (isinstance(value, bool) or math.isnan(value))
        and isinstance(metrics := found.get("metrics"), dict)
        and all(type(one) in (int, float) for one in metrics.values())
    )


FORMAT = 4
"""Version of the folder's format; any other is refused."""

MANIFEST_FILE = "manifest.json"
LOGS = ("metrics.jsonl", "samples.jsonl")
SLOTS = ("resume/a.safetensors", "resume/b.safetensors")
"""Files of the newest checkpoint and the one before it, used in turn."""


LogExtent = tuple[int, str]
"""Bytes of a log that were complete at a checkpoint, and their SHA-256."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Fingerprint:
    """Name, size and SHA-256 of a file that a run was trained on, by which a later change is noticed."""

    name: str
    """As in config.toml."""
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    """Entry of a checkpoint in the manifest."""

    file: str
    sha256: str
    step: int
    logs: dict[str, LogExtent]
    """Extent of each log at the checkpoint."""


@dataclass
class Manifest:
    """Content of manifest.json."""

    task: str
    vocabularies: list[str]
    files: dict[str, list[str]] = field(default_factory=dict)
    """SHA-256 of each file; two while it is being replaced."""
    texts: dict[str, list[Fingerprint]] = field(default_factory=dict)
    """Files that the run was trained on, by the option that names them."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """At most two, newest first."""

    def to_json(self) -> bytes:
        content = {"format": FORMAT, **asdict(self)}
        return json.dumps({**content, "sha256": _digest(content)}, indent=1).encode()

    @classmethod
    def from_json(cls, content: bytes, name: str) -> Manifest:
        """Return the manifest that a file holds; refuse another version and anything that recur does not write."""
        try:
            found = parse_json(content, name)
            if found["format"] != FORMAT:
                raise RunError(f"{name} was written by another version of recur, whose runs this version cannot read")
            if found.pop("sha256") != _digest(found):
                raise ValueError("its checksum does not match its content")
            return _manifest(found)
        except RunError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise RunError(f"{name} is damaged") from None


def _digest(content: JsonObject) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode())


# Validation: one function per level of a manifest; each raises ValueError for what recur does not write. --------------


def _manifest(found: Any) -> Manifest:
    fields = _fields(found, "format", "task", "vocabularies", "files", "texts", "checkpoints")
    checkpoints = [_checkpoint(entry) for entry in expect_type(list, fields["checkpoints"])]
    if len({entry.file for entry in checkpoints}) != len(checkpoints):
        raise ValueError("two checkpoints name the same file")
    return Manifest(
        task=expect_type(str, fields["task"]),
        vocabularies=[_matching(r"[\w-]+", name) for name in expect_type(list, fields["vocabularies"])],
        files={
            _matching(r"[\w-]+\.(json|toml|py|safetensors)", name): _digests(digests)
            for name, digests in expect_type(dict, fields["files"]).items()
        },
        texts={
            option: [_fingerprint(entry) for entry in expect_type(list, entries)]
            for option, entries in expect_type(dict, fields["texts"]).items()
        },
        checkpoints=checkpoints,
    )


def _checkpoint(entry: Any) -> Checkpoint:
    fields = _fields(entry, "file", "sha256", "step", "logs")
    if fields["file"] not in SLOTS:
        raise ValueError("unknown checkpoint file")
    logs = {name: _extent(extent) for name, extent in _fields(fields["logs"], *LOGS).items()}
    return Checkpoint(fields["file"], _sha256(fields["sha256"]), _count(fields["step"]), logs)


def _extent(found: Any) -> LogExtent:
    length, digest = expect_type(list, found)
    return _count(length), _sha256(digest)


def _fingerprint(entry: Any) -> Fingerprint:
    fields = _fields(entry, "name", "bytes", "sha256")
    return Fingerprint(expect_type(str, fields["name"]), _count(fields["bytes"]), _sha256(fields["sha256"]))


def _digests(found: Any) -> list[str]:
    if len(expect_type(list, found)) not in (1, 2):
        raise ValueError("a file has one digest, or two while it is replaced")
    return [_sha256(digest) for digest in found]


def _sha256(found: Any) -> str:
    return _matching(r"[0-9a-f]{64}", found)


def _fields(found: Any, *names: str) -> JsonObject:
    """Return an object that has exactly these fields."""
    if set(expect_type(dict, found)) != {*names}:
        raise ValueError(f"expected the fields {', '.join(names)}")
    return found  # type: ignore[no-any-return]


def _matching(pattern: str, found: Any) -> str:
    if not re.fullmatch(pattern, expect_type(str, found)):
        raise ValueError(f"{found!r} does not match {pattern}")
    return found  # type: ignore[no-any-return]


def _count(found: Any) -> int:
    if expect_type(int, found) < 0:
        raise ValueError(f"{found} is below 0")
    return found  # type: ignore[no-any-return]


def expect_type(kind: type, value: Any) -> Any:
    """Return a value of exactly this type; raise ValueError for any other."""
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def expect_number(value: Any) -> float:
    """Return a finite number; raise ValueError for anything else."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value!r}")
    return value  # type: ignore[no-any-return]


def expect_one_of(values: tuple[str, ...], value: Any) -> Any:
    """Return a value that is one of these; raise ValueError for any other."""
    if value not in values:
        raise ValueError(f"expected one of {', '.join(values)}, got {value!r}")
    return value


class VerifiedFolder:
    """Folder whose files are checked against the SHA-256 checksums of its manifest."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.dir, self.manifest = path, SafeDir(path), manifest

    def read(self, name: str, most: int = JSON_BYTES) -> bytes:
        """Return the content of a file; refuse it if its checksum is not in the manifest."""
        while True:
            try:
                content = self.dir.read(name, most)
            except FileNotFoundError:
                raise RunError(f"{self.path / name} is missing; restore it") from None
            if sha256(content) in self.manifest.files.get(name, ()):
                return content
            known, self.manifest = self.manifest, read_manifest(self.dir)
            if self.manifest == known:  # else the training process has replaced the file since the manifest was read
                break
        raise self._changed(name)

    def replace(self, name: str, content: bytes) -> None:
        """Write or replace a file; the next commit makes it part of the run.

        Until then the manifest has the checksums of the old and the new content, so that the folder is valid if the
        process is killed between the two writes.
        """
        known = self.manifest.files.get(name, [])[-1:]
        if known:
            self.manifest.files[name] = [*known, sha256(content)]
            self._write_manifest()
        self.dir.write(name, content)
        self.manifest.files[name] = [*known, sha256(content)]

    def commit(self) -> None:
        """Make the current files the content of the run."""
        self.manifest.files = {name: digests[-1:] for name, digests in self.manifest.files.items()}
        self._write_manifest()

    def _write_manifest(self) -> None:
        self.dir.write(MANIFEST_FILE, self.manifest.to_json())

    def check_files(self) -> None:
        """Check every file before a run is resumed; the best weights too, which stay if no better ones follow."""
        self.dir.sweep("resume")
        for name in list(self.manifest.files):
            # A file that was being replaced has two checksums: keep the one that matches.
            digest = self._digest(name)
            if digest not in self.manifest.files[name]:
                raise self._changed(name)
            self.manifest.files[name] = [digest]

    def _digest(self, name: str) -> str:
        try:
            return self.dir.digest(name)
        except FileNotFoundError:
            raise RunError(f"{self.path / name} is missing; restore it") from None

    def _changed(self, name: str) -> RunError:
        return RunError(f"{self.path / name} does not match its checksum: it was changed or damaged; restore it")


def read_manifest(folder: SafeDir) -> Manifest:
    name = str(folder.path / MANIFEST_FILE)
    try:
        return Manifest.from_json(folder.read(MANIFEST_FILE, JSON_BYTES), name)
    except FileNotFoundError:
        raise RunError(f"{name} is missing") from None


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
        return None if whole else f"{self.path} is damaged: its earlier entries are lost"

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


PROGRESS_FILE = "progress.jsonl"
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
        self.dir.append(PROGRESS_FILE, line.encode(), flushed=False)

    def rewind(self, step: int) -> None:
        """Remove the points after a step, which is trained again."""
        try:
            found = parse_jsonl(self.dir.read(PROGRESS_FILE, JSON_BYTES)) if step else []
        except FileNotFoundError:
            found = []
        kept = [entry for entry in found if isinstance(known := entry.get("step"), int) and known <= step]
        self.dir.write(PROGRESS_FILE, "".join(json.dumps(entry) + "\n" for entry in kept).encode())
        self._there = True
