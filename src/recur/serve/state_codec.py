"""States of sessions outside of memory: as files, and as signed tokens that clients hold.

Both are safetensors, which hold only numbers, with a header that names the model. A token is signed (HMAC-SHA256): a
client can store, copy and return it, but cannot change or forge one. The header has the digest of the weights and an
expiry time. A token is not encrypted: it holds what the client's own inputs produced.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from recur.errors import OptionError, RunError
from recur.runs.weights import from_bytes, to_bytes
from recur.serve.state_pool import StateTensors
from recur.utils.files import write_atomically
from recur.utils.types import JsonObject

PREFIX = "rs1."
MAX_TOKEN_CHARS = 1 << 24
"""Characters of a token."""


@dataclass(frozen=True)
class StateHeader:
    """Header of a stored state: its model, owner, and expiry time."""

    model: str
    digest: str
    owner: str
    steps: int
    last: int
    """Last token that was read; −1 if none was."""
    until: float
    """Expiry time in seconds since 1970."""


def pack_state(header: StateHeader, parts: StateTensors | None) -> bytes:
    tensors = {f"{k:03d}": part for k, part in enumerate(parts or [])}
    digest = hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in tensors.values())).hexdigest()
    return to_bytes(tensors, {**asdict(header), "sha256": digest})


def unpack_state(content: bytes, name: str) -> tuple[StateHeader, StateTensors | None]:
    """Return the header and tensors of a packed state; refuse a damaged one."""
    tensors, found = from_bytes(content, Path(name))
    parts = [tensors[name] for name in sorted(tensors)]
    digest = hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in parts)).hexdigest()
    if found.pop("sha256", None) != digest:
        raise RunError(f"{name} is damaged: its checksum does not match")
    return _parse_header(found, name), parts or None


def _parse_header(found: JsonObject, name: str) -> StateHeader:
    kinds = {"model": str, "digest": str, "owner": str, "steps": int, "last": int, "until": float}
    if found.keys() != kinds.keys() or any(type(found[key]) is not kind for key, kind in kinds.items()):
        raise RunError(f"{name} is damaged: its header is invalid")
    return StateHeader(**found)


class StateSigner:
    """Signer and verifier of states that clients hold."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    @classmethod
    def from_folder(cls, folder: Path) -> StateSigner:
        """Return a signer with the secret of a private folder, so that tokens outlive the process."""
        path = folder / "secret"
        try:
            secret = path.read_bytes()
        except FileNotFoundError:
            secret = secrets.token_bytes(32)
            write_atomically(path, secret, 0o600)
        if len(secret) < 32:
            raise RunError(f"{path} is damaged: a secret has 32 bytes")
        return cls(secret)

    def token(self, header: StateHeader, parts: StateTensors | None) -> str:
        content = pack_state(header, parts)
        return PREFIX + base64.urlsafe_b64encode(self._sign(content) + content).decode().rstrip("=")

    def open(self, token: str, now: float) -> tuple[StateHeader, StateTensors | None]:
        """Return the header and tensors of a token; refuse one that is forged, changed or expired."""
        refused = OptionError("the state token was not issued by this server, or was changed")
        if not token.startswith(PREFIX) or len(token) > MAX_TOKEN_CHARS:
            raise refused
        text = token.removeprefix(PREFIX)
        try:
            whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise refused from None
        if not hmac.compare_digest(whole[:32], self._sign(whole[32:])):
            raise refused
        header, parts = unpack_state(whole[32:], "the state token")
        if header.until < now:
            raise OptionError("the state token has expired")
        return header, parts

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._secret, content, "sha256")


def check_private(folder: Path) -> None:
    """Refuse a folder that other users own, read or write: they could read states or replace them."""
    if not hasattr(os, "getuid"):  # Windows, where the permissions of a user's folder are inherited
        return
    found = folder.stat()
    if found.st_uid != os.getuid():
        raise OptionError(f"--spill {folder} belongs to another user; choose a folder of your own")
    if found.st_mode & 0o066:
        mode = stat.S_IMODE(found.st_mode)
        raise OptionError(f"--spill {folder} is open to other users (mode {mode:04o}); run: chmod 700 {folder}")


class SessionStore:
    """Folder with one file per session, named by its id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_private(folder)
        self.count = sum(1 for _ in folder.glob("*.safetensors"))

    def _path(self, session: str) -> Path:
        assert session.isalnum()
        return self.folder / f"{session}.safetensors"

    def put(self, session: str, header: StateHeader, parts: StateTensors | None) -> None:
        there = self._path(session).exists()
        write_atomically(self._path(session), pack_state(header, parts), 0o600)
        self.count += not there

    def has(self, session: str) -> bool:
        return self._path(session).is_file()

    def header(self, session: str) -> StateHeader:
        return unpack_state(self._path(session).read_bytes(), self._path(session).name)[0]

    def take(self, session: str) -> tuple[StateHeader, StateTensors | None]:
        """Return a stored state and delete its file: an outdated state must not be restored later."""
        path = self._path(session)
        header, parts = unpack_state(path.read_bytes(), path.name)
        self.remove(session)
        return header, parts

    def remove(self, session: str) -> bool:
        try:
            self._path(session).unlink()
        except FileNotFoundError:
            return False
        self.count -= 1
        return True

    def sweep(self, before: float) -> None:
        """Delete the files that were written before a time."""
        for path in self.folder.glob("*.safetensors"):
            try:
                if path.stat().st_mtime < before:
                    self.remove(path.stem)
            except FileNotFoundError:
                continue
