"""Sessions in memory, on disk as files, and as signed tokens that clients hold.

Files and tokens are safetensors, which hold only numbers, with a header that names the model. A token is signed
(HMAC-SHA256): a client can store, copy and return it, but cannot change or forge one. The header has the digest of the
weights and an expiry time. A token is not encrypted: it holds what the client's own inputs produced.

The session manager runs in the event loop's thread. The states belong to the engine's thread, which copies them on
request.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import itertools
import logging
import os
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from recur.errors import OptionError, RecurError, RunError
from recur.runs.weights import from_bytes, to_bytes
from recur.serve.engine import Engine
from recur.serve.http import BusyError, ConflictError, UnknownError
from recur.serve.models import ModelVersions, ServedModel, check_model
from recur.serve.schemas import Limits
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
    return to_bytes(tensors, {**asdict(header), "sha256": _digest(parts or [])})


def _digest(parts: StateTensors) -> str:
    return hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in parts)).hexdigest()


def unpack_state(content: bytes, name: str) -> tuple[StateHeader, StateTensors | None]:
    """Return the header and tensors of a packed state; refuse a damaged one."""
    tensors, found = from_bytes(content, Path(name))
    parts = [tensors[name] for name in sorted(tensors)]
    if found.pop("sha256", None) != _digest(parts):
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


SPILL_BATCH = 256
"""Sessions that are written to disk together."""
DISK_SWEEP = 60.0
"""Seconds between two deletions of expired files."""
ID_DIGITS = 24
"""Hexadecimal digits of an id."""

log = logging.getLogger("recur.serve")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Session:
    """Session of one client: the slot of its state, and what it has read."""

    id: str
    served: ServedModel
    owner: str
    slot: int
    created: float
    used: float
    steps: int = 0
    """Number of inputs that it has read."""
    last: int = -1
    """Last token that it has read; −1 if none was."""
    busy: bool = False

    def read(self, inputs: Sequence[object]) -> None:
        """Count inputs that the session is about to read."""
        self.steps += len(inputs)
        if inputs and isinstance(inputs[-1], int):
            self.last = inputs[-1]


@dataclass(frozen=True, slots=True)
class StartState:
    """Model of a request, and the session or state that the request starts from."""

    served: ServedModel
    session: Session | None = None
    parts: StateTensors | None = None
    steps: int = 0
    last: int = -1


class SessionManager:
    """Sessions of one server, in memory and on disk."""

    def __init__(
        self,
        models: ModelVersions,
        engine: Engine,
        limits: Limits,
        seal: StateSigner,
        store: SessionStore | None = None,
    ) -> None:
        self.models, self.engine, self.limits, self.seal, self.store = models, engine, limits, seal, store
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        """Sessions in memory, least recently used first."""
        self._moving: dict[str, asyncio.Future[None]] = {}
        """Sessions on their way between memory and disk; requests for them wait for the future."""
        self._swept = 0.0
        self.expired = self.spilled = self.restored = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def stored(self) -> int:
        return self.store.count if self.store is not None else 0

    # Create, use, delete -------------------------------------------------------------------------------------------

    async def begin(self, served: ServedModel, owner: str) -> Session:
        """Return a new session, held by the caller."""
        await self._make_room(1)
        return self._enter(secrets.token_hex(ID_DIGITS // 2), served, owner)

    def _enter(self, name: str, served: ServedModel, owner: str) -> Session:
        slot = served.pool.take()
        if slot is None:
            raise BusyError("no slot is free for another session; try again in a moment")
        now = time.time()
        session = self._sessions[name] = Session(name, served, owner, slot, now, now, busy=True)
        return session

    @asynccontextmanager
    async def use(self, name: str, owner: str) -> AsyncIterator[Session]:
        """Hold a session during one request; other requests for it get 409."""
        session = await self.hold(name, owner)
        try:
            yield session
        finally:
            self.release(session)

    async def hold(self, name: str, owner: str) -> Session:
        session = self._sessions.get(name)
        if session is None:
            session = await self._restore(name, owner)
        if session is None or session.owner != owner:
            raise UnknownError(f"there is no session {name[:100]!r}: it has expired, or never existed")
        if session.served.over:
            self.drop(session)
            raise UnknownError(
                f"session {name} has ended: {session.served.name} has newer weights; create a new session"
            )
        if session.busy:
            raise ConflictError(f"session {name} is in use by another request; send one request at a time")
        session.busy = True
        return session

    @contextmanager
    def release_on_error(self, session: Session | None) -> Iterator[None]:
        """Release a held session if the block raises."""
        try:
            yield
        except BaseException:
            if session is not None:
                self.release(session)
            raise

    def release(self, session: Session) -> None:
        session.busy = False
        session.used = time.time()
        if session.id in self._sessions:
            self._sessions.move_to_end(session.id)

    def drop(self, session: Session) -> None:
        """Delete a session from memory."""
        if self._sessions.pop(session.id, None) is not None:
            session.served.pool.give(session.slot)

    def describe(self, session: Session) -> JsonObject:
        left = self.limits.idle + (self.limits.keep if self.store is not None else 0)
        return {
            "id": session.id,
            "object": "session",
            "model": session.served.name,
            "created": int(session.created),
            "expires_at": int(session.used + left),
            "steps": session.steps,
        }

    # States that clients hold -------------------------------------------------------------------------------------

    def token(self, served: ServedModel, owner: str, steps: int, last: int, parts: StateTensors | None) -> str:
        return self.seal.token(
            StateHeader(served.name, served.digest, owner, steps, last, time.time() + self.limits.keep), parts
        )

    async def resume(self, model: str | None, owner: str, name: str | None, token: str | None) -> StartState:
        """Return the model and state that a request starts from; a session, given by name, is held afterwards.

        This comes before the inputs are checked: the session's model is the request's model, and token ids checked
        against another model would be out of range, or other words.
        """
        if token is not None:
            header, parts = self.seal.open(token, time.time())
            start = StartState(self._check_header(header, parts, owner), None, parts, header.steps, header.last)
        elif name is not None:
            session = await self.hold(name, owner)
            start = StartState(session.served, session, None, session.steps, session.last)
        else:
            return StartState(self.models.get(model))
        with self.release_on_error(start.session):
            check_model(model, start.served)
        return start

    def _check_header(self, header: StateHeader, parts: StateTensors | None, owner: str) -> ServedModel:
        if header.owner != owner:
            raise UnknownError("the state belongs to another client")
        served = self.models.of(header.model, header.digest)
        if parts is not None:
            served.pool.check(parts)
        return served

    async def state(self, session: Session) -> StateTensors | None:
        """Return a copy of the session's state."""
        return await self._run_in_engine(lambda: session.served.pool.state(session.slot))

    async def _run_in_engine(self, work: Callable[[], Result]) -> Result:
        return await asyncio.wrap_future(self.engine.call(work))

    # On disk ------------------------------------------------------------------------------------------------------

    async def _make_room(self, count: int) -> None:
        """Write the least recently used sessions to disk if memory is full."""
        if len(self._sessions) + count <= self.limits.sessions:
            return
        idle = [session for session in self._sessions.values() if not session.busy]
        if self.store is None or not idle or self.store.count >= self.limits.stored:
            raise BusyError(f"there are {len(self._sessions):,} sessions, the maximum; delete one, or wait")
        await self._spill(idle[: min(SPILL_BATCH, max(count, len(idle) // 16))])

    async def _spill(self, sessions: list[Session]) -> None:
        """Write sessions to disk; a session that cannot be written stays in memory."""
        store, loop = self.store, asyncio.get_running_loop()
        assert store is not None
        done = loop.create_future()
        for session in sessions:
            session.busy = True
            self._sessions.pop(session.id)
            self._moving[session.id] = done
        written = 0
        try:
            copies = await self._run_in_engine(
                lambda: [session.served.pool.state(session.slot) for session in sessions]
            )
            until = time.time() + self.limits.keep

            def write() -> int:
                for k, (session, parts) in enumerate(zip(sessions, copies, strict=True)):
                    served = session.served
                    header = StateHeader(served.name, served.digest, session.owner, session.steps, session.last, until)
                    try:
                        store.put(session.id, header, parts)
                    except OSError as error:
                        log.error("sessions cannot be written: %s", error.strerror)
                        return k
                return len(sessions)

            written = await to_thread.run_sync(write)
        finally:
            for k, session in enumerate(sessions):
                del self._moving[session.id]
                session.busy = False
                if k < written:
                    session.served.pool.give(session.slot)
                else:
                    self._sessions[session.id] = session
            self.spilled += written
            done.set_result(None)
        if written < len(sessions):
            raise BusyError("sessions cannot be written to disk, and memory is full")

    async def _restore(self, name: str, owner: str) -> Session | None:
        """Load a session from disk; return None if it is not there."""
        while (moving := self._moving.get(name)) is not None:
            await asyncio.shield(moving)
            if name in self._sessions:
                return self._sessions[name]
        store = self.store
        if store is None or len(name) != ID_DIGITS or not name.isascii() or not name.isalnum() or not store.has(name):
            return None
        done = self._moving[name] = asyncio.get_running_loop().create_future()
        try:
            header = await to_thread.run_sync(store.header, name)
            if header.owner != owner or header.until < time.time():
                return None
            served = self.models.of(header.model, header.digest)
            await self._make_room(1)
            header, parts = await to_thread.run_sync(store.take, name)
            self._check_header(header, parts, owner)
            session = self._enter(name, served, owner)
            await self._run_in_engine(lambda: served.pool.set_state(session.slot, parts))
            session.steps, session.last, session.busy = header.steps, header.last, False
            self.restored += 1
            return session
        except FileNotFoundError:
            return None
        except RunError as error:
            log.error("a session is lost: %s", error)
            return None
        finally:
            del self._moving[name]
            done.set_result(None)

    async def remove(self, name: str, owner: str) -> None:
        """Delete a session from memory or disk."""
        self.drop(await self.hold(name, owner))

    async def sweep(self) -> None:
        """Remove idle sessions from memory: to disk, or for good."""
        late = time.time() - self.limits.idle
        for served in {session.served for session in self._sessions.values() if session.served.over}:
            for session in [each for each in self._sessions.values() if each.served is served and not each.busy]:
                self.drop(session)
        expired = itertools.takewhile(lambda session: session.used <= late, self._sessions.values())
        idle = [session for session in expired if not session.busy]
        for k in range(0, len(idle), SPILL_BATCH):
            some = [
                session for session in idle[k : k + SPILL_BATCH] if session.id in self._sessions and not session.busy
            ]
            if self.store is not None and self.store.count < self.limits.stored:
                try:
                    await self._spill(some)
                    continue
                except RecurError:
                    return
            for session in some:
                self.drop(session)
            self.expired += len(some)
        if self.store is not None and time.monotonic() - self._swept > DISK_SWEEP:
            self._swept = time.monotonic()
            await to_thread.run_sync(self.store.sweep, time.time() - self.limits.keep)

    async def leave(self, seconds: float) -> int:
        """Write sessions to disk when the server stops, for at most `seconds`; return how many are lost."""
        end = time.monotonic() + seconds
        while self.store is not None and time.monotonic() < end:
            idle = [session for session in self._sessions.values() if not session.busy and not session.served.over]
            if not idle:
                break
            try:
                await self._spill(idle[-SPILL_BATCH:])
            except RecurError:
                break
        return len(self._sessions)
