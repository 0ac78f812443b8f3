"""manifest.json: what belongs to a run, with the SHA-256 of everything, its own included.

It is the last thing written whenever something changes, so what it names is on disk and whole. A file that is about to
be replaced has two digests in it, the old one and the new one: whenever the writer is killed, one of them fits.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from recur.errors import RunError
from recur.run.parsing import parse_json
from recur.typedefs import JsonObject

FORMAT = 4
"""Of the folder; another one is refused."""

NAME = "manifest.json"
LOGS = ("metrics.jsonl", "samples.jsonl")
SLOTS = ("resume/a.safetensors", "resume/b.safetensors")
"""The newest checkpoint and the one before it, in turn."""


Extent = tuple[int, str]
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
    logs: dict[str, Extent]
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


def _extent(found: Any) -> Extent:
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
