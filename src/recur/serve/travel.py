"""A session's state outside of memory: as a file, or as a token in its client's hands.

Both are safetensors, which hold nothing but numbers, and what they are the state of. A token is signed (HMAC-SHA256):
its client can keep it, copy it and hand it back, and neither change nor make one. It says which weights it is of and
until when it may be used. It is not encrypted: what is in it is what the client's own inputs left.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from recur.errors import OptionError, RunError
from recur.files import write_atomically
from recur.run.tensors import from_bytes, to_bytes
from recur.serve.network import Parts
from recur.typedefs import JsonObject

PREFIX = "rs1."
LONGEST = 1 << 24
"""Bytes of a state, at most."""


@dataclass(frozen=True)
class About:
    """What a state is of."""

    model: str
    digest: str
    owner: str
    steps: int
    last: int
    """The last token that was read; −1 where there is none."""
    until: float
    """Seconds since 1970."""


def packed(about: About, parts: Parts | None) -> bytes:
    tensors = {f"{k:03d}": part for k, part in enumerate(parts or [])}
    digest = hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in tensors.values())).hexdigest()
    return to_bytes(tensors, {**asdict(about), "sha256": digest})


def unpacked(content: bytes, name: str) -> tuple[About, Parts | None]:
    """What was packed; a damaged one is refused."""
    tensors, found = from_bytes(content, Path(name))
    parts = [tensors[name] for name in sorted(tensors)]
    digest = hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in parts)).hexdigest()
    if found.pop("sha256", None) != digest:
        raise RunError(f"{name} is damaged: its numbers are not those that were written")
    return _about(found, name), parts or None


def _about(found: JsonObject, name: str) -> About:
    kinds = {"model": str, "digest": str, "owner": str, "steps": int, "last": int, "until": float}
    if found.keys() != kinds.keys() or any(type(found[key]) is not kind for key, kind in kinds.items()):
        raise RunError(f"{name} is damaged: it does not say what it is of")
    return About(**found)


class Seal:
    """Signs states that leave the server, and knows its own again."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    @classmethod
    def kept_in(cls, folder: Path) -> Seal:
        """With a secret that outlives this process, in a folder that only its owner reads."""
        path = folder / "secret"
        try:
            secret = path.read_bytes()
        except FileNotFoundError:
            secret = secrets.token_bytes(32)
            write_atomically(path, secret)
            os.chmod(path, 0o600)
        if len(secret) < 32:
            raise RunError(f"{path} is damaged: a secret has 32 bytes")
        return cls(secret)

    def token(self, about: About, parts: Parts | None) -> str:
        content = packed(about, parts)
        return PREFIX + base64.urlsafe_b64encode(self._sign(content) + content).decode().rstrip("=")

    def open(self, token: str, now: float) -> tuple[About, Parts | None]:
        """What a token holds, if it is one of ours and may still be used."""
        refused = OptionError("the session's token is not one of this server's, or was changed")
        if not token.startswith(PREFIX) or len(token) > LONGEST:
            raise refused
        text = token.removeprefix(PREFIX)
        try:
            whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise refused from None
        if not hmac.compare_digest(whole[:32], self._sign(whole[32:])):
            raise refused
        about, parts = unpacked(whole[32:], "the session's token")
        if about.until < now:
            raise OptionError("the session's token has expired")
        return about, parts

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._secret, content, "sha256")


class Store:
    """Sessions in a folder, a file each, found by their ids alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.count = sum(1 for _ in folder.glob("*.safetensors"))

    def _path(self, session: str) -> Path:
        assert session.isalnum()
        return self.folder / f"{session}.safetensors"

    def put(self, session: str, about: About, parts: Parts | None) -> None:
        there = self._path(session).exists()
        write_atomically(self._path(session), packed(about, parts))
        self.count += not there

    def has(self, session: str) -> bool:
        return self._path(session).is_file()

    def about(self, session: str) -> About:
        return unpacked(self._path(session).read_bytes(), self._path(session).name)[0]

    def take(self, session: str) -> tuple[About, Parts | None]:
        """What was put there, which is gone from disk then: an older state must not come back."""
        path = self._path(session)
        about, parts = unpacked(path.read_bytes(), path.name)
        self.remove(session)
        return about, parts

    def remove(self, session: str) -> bool:
        try:
            self._path(session).unlink()
        except FileNotFoundError:
            return False
        self.count -= 1
        return True

    def sweep(self, before: float) -> None:
        """Remove what was put there before a time."""
        for path in self.folder.glob("*.safetensors"):
            try:
                if path.stat().st_mtime < before:
                    self.remove(path.stem)
            except FileNotFoundError:
                continue
