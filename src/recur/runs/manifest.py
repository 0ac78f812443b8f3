"""Parsers for the JSON files of a run, which may come from anybody."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recur.errors import RunError
from recur.runs.safe_dir import SafeDir
from recur.utils.limits import JSON_BYTES, JSON_VALUES, LOG_LINE, LOG_RECORDS, check_json, json_values
from recur.utils.types import JsonObject

DIGITS = 19
"""Digits of an integer at most. More of them do not fit into 64 bits, and float() of a long integer overflows."""


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
"""Of the folder; another one is refused."""

NAME = "manifest.json"
LOGS = ("metrics.jsonl", "samples.jsonl")
SLOTS = ("resume/a.safetensors", "resume/b.safetensors")
"""The newest checkpoint and the one before it, in turn."""


LogExtent = tuple[int, str]
"""How many bytes of a log had been written, and their digest."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Fingerprint:
    """A file that the run learned from, or part of one, which may have been changed since."""

    name: str
    """As in config.toml."""
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    """A place to go on from."""

    file: str
    sha256: str
    step: int
    logs: dict[str, LogExtent]
    """What had been written of each log."""


@dataclass
class Manifest:
    task: str
    vocabularies: list[str]
    files: dict[str, list[str]] = field(default_factory=dict)
    """The digest of each file; two, while it is being replaced."""
    texts: dict[str, list[Fingerprint]] = field(default_factory=dict)
    """What it learned from, by the option that names it."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """The newest first; two at most."""

    def to_json(self) -> bytes:
        content = {"format": FORMAT, **asdict(self)}
        return json.dumps({**content, "sha256": _digest(content)}, indent=1).encode()

    @classmethod
    def from_json(cls, content: bytes, name: str) -> Manifest:
        """Return the manifest that a file holds; refuse another version and anything that recur does not write."""
        try:
            found = parse_json(content, name)
            if found["format"] != FORMAT:
                raise RunError(f"{name} is of another version of recur, whose runs this one does not read")
            if found.pop("sha256") != _digest(found):
                raise ValueError("its digest does not fit its content")
            return _manifest(found)
        except RunError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise RunError(f"{name} is damaged") from None


def _digest(content: JsonObject) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode())


# The structure of a manifest. One function per level; each raises ValueError for what recur does not write. -----------


def _manifest(found: Any) -> Manifest:
    fields = _fields(found, "format", "task", "vocabularies", "files", "texts", "checkpoints")
    checkpoints = [_checkpoint(entry) for entry in _is(list, fields["checkpoints"])]
    if len({entry.file for entry in checkpoints}) != len(checkpoints):
        raise ValueError("two checkpoints are one file")
    return Manifest(
        task=_is(str, fields["task"]),
        vocabularies=[_matching(r"[\w-]+", name) for name in _is(list, fields["vocabularies"])],
        files={
            _matching(r"[\w-]+\.(json|toml|py|safetensors)", name): _digests(digests)
            for name, digests in _is(dict, fields["files"]).items()
        },
        texts={
            option: [_fingerprint(entry) for entry in _is(list, entries)]
            for option, entries in _is(dict, fields["texts"]).items()
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
    length, digest = _is(list, found)
    return _count(length), _sha256(digest)


def _fingerprint(entry: Any) -> Fingerprint:
    fields = _fields(entry, "name", "bytes", "sha256")
    return Fingerprint(_is(str, fields["name"]), _count(fields["bytes"]), _sha256(fields["sha256"]))


def _digests(found: Any) -> list[str]:
    if len(_is(list, found)) not in (1, 2):
        raise ValueError("a file has one digest, or two while it is replaced")
    return [_sha256(digest) for digest in found]


def _sha256(found: Any) -> str:
    return _matching(r"[0-9a-f]{64}", found)


def _fields(found: Any, *names: str) -> JsonObject:
    """Return an object that has exactly these fields."""
    if set(_is(dict, found)) != {*names}:
        raise ValueError(f"expected the fields {', '.join(names)}")
    return found  # type: ignore[no-any-return]


def _matching(pattern: str, found: Any) -> str:
    if not re.fullmatch(pattern, _is(str, found)):
        raise ValueError(f"{found!r} does not match {pattern}")
    return found  # type: ignore[no-any-return]


def _count(found: Any) -> int:
    if _is(int, found) < 0:
        raise ValueError(f"{found} is below 0")
    return found  # type: ignore[no-any-return]


def _is(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


class VerifiedFolder:
    """A folder whose manifest knows its files."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.place, self.manifest = path, SafeDir(path), manifest

    def read(self, name: str, most: int = JSON_BYTES) -> bytes:
        """The content of a file as it was written; another one is refused."""
        while True:
            try:
                content = self.place.read(name, most)
            except FileNotFoundError:
                raise RunError(f"{self.path / name} is missing; put it back") from None
            if sha256(content) in self.manifest.files.get(name, ()):
                return content
            known, self.manifest = self.manifest, read_manifest(self.place)
            if self.manifest == known:  # else whoever trains it has replaced the file since the manifest was read
                break
        raise self._changed(name)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file anew. One that is there has both digests in the manifest until the next commit; a new one is the
        run's with that."""
        known = self.manifest.files.get(name, [])[-1:]
        if known:
            self.manifest.files[name] = [*known, sha256(content)]
            self._write_manifest()
        self.place.write(name, content)
        self.manifest.files[name] = [*known, sha256(content)]

    def commit(self) -> None:
        """What was written is now what the run is."""
        self.manifest.files = {name: digests[-1:] for name, digests in self.manifest.files.items()}
        self._write_manifest()

    def _write_manifest(self) -> None:
        self.place.write(NAME, self.manifest.to_json())

    def check_files(self) -> None:
        """Before a run is trained on: the best weights too, for they stay if nothing better comes."""
        self.place.sweep("resume")
        for name in list(self.manifest.files):
            # Of a file that was being replaced, the digest that it has: the next commit keeps one.
            digest = self._digest(name)
            if digest not in self.manifest.files[name]:
                raise self._changed(name)
            self.manifest.files[name] = [digest]

    def _digest(self, name: str) -> str:
        try:
            return self.place.digest(name)
        except FileNotFoundError:
            raise RunError(f"{self.path / name} is missing; put it back") from None

    def _changed(self, name: str) -> RunError:
        return RunError(f"{self.path / name} is not what this run wrote: it was changed or damaged since; put it back")


def read_manifest(place: SafeDir) -> Manifest:
    name = str(place.path / NAME)
    try:
        return Manifest.from_json(place.read(NAME, JSON_BYTES), name)
    except FileNotFoundError:
        raise RunError(f"{name} is missing") from None
