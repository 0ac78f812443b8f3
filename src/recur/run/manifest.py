"""manifest.json: what belongs to a run, with the SHA-256 of everything, its own included.

It is the last thing written whenever something changes, so what it names is on disk and whole. A file that is about to
be replaced has two digests in it, the old one and the new one: whenever the writer is killed, one of them fits.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from recur.errors import RunError
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
        """A manifest that is whole, or what is wrong with it."""

        def refuse(why: str) -> NoReturn:
            raise RunError(f"{name} {why}")

        try:
            found = json.loads(content)
            if found["format"] != FORMAT:
                refuse("is of another version of recur, whose runs this one does not read")
            if found.pop("sha256") != _digest(found):
                refuse("is damaged")
            return cls(**_checked(found))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, RunError):
                raise
            refuse("is damaged")


def _digest(content: JsonObject) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode())


def _checked(found: Any) -> dict[str, Any]:
    """The fields of a manifest, each of its type; a wrong one raises."""
    names = _list_of(str, found["vocabularies"])
    files = {_file(name): _list_of(str, digests) for name, digests in found["files"].items()}
    texts = {str(option): [_fingerprint(one) for one in many] for option, many in found["texts"].items()}
    checkpoints = [_checkpoint(entry) for entry in found["checkpoints"]]
    if not all(re.fullmatch(r"[\w-]+", name) for name in names):
        raise ValueError
    return {"task": _is(str, found["task"]), "vocabularies": names, "files": files, "texts": texts,
            "checkpoints": checkpoints}  # fmt: skip


def _checkpoint(entry: Any) -> Checkpoint:
    if entry["file"] not in SLOTS:
        raise ValueError
    logs = {name: (_is(int, entry["logs"][name][0]), _is(str, entry["logs"][name][1])) for name in LOGS}
    return Checkpoint(entry["file"], _is(str, entry["sha256"]), _is(int, entry["step"]), logs)


def _fingerprint(entry: Any) -> Fingerprint:
    return Fingerprint(_is(str, entry["name"]), _is(int, entry["bytes"]), _is(str, entry["sha256"]))


def _file(name: str) -> str:
    if not re.fullmatch(r"[\w-]+\.(json|toml|py|safetensors)", name):
        raise ValueError
    return name


def _is(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _list_of(kind: type, values: Any) -> Any:
    return [_is(kind, value) for value in _is(list, values)]
