"""Sessions by id: in a slot of memory while they are used, then on disk or deleted.

All of this runs in the event loop's thread. The states belong to the engine's thread, which copies them on request.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from anyio import to_thread

from recur.errors import RecurError, RunError
from recur.serve.engine import Engine
from recur.serve.http.responses import BusyError, UnknownError
from recur.serve.models import ModelVersions, ServedModel
from recur.serve.responses import ConflictError
from recur.serve.schemas import Limits
from recur.serve.state_codec import SessionStore, StateHeader, StateSigner
from recur.serve.state_pool import StateTensors
from recur.utils.types import JsonObject

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
        return self.seal.token(StateHeader(served.name, served.digest, owner, steps, last, self._until()), parts)

    def from_token(self, token: str, owner: str) -> tuple[ServedModel, StateHeader, StateTensors | None]:
        header, parts = self.seal.open(token, time.time())
        return (*self._check_header(header, parts, owner), parts)

    def _check_header(
        self, header: StateHeader, parts: StateTensors | None, owner: str
    ) -> tuple[ServedModel, StateHeader]:
        if header.owner != owner:
            raise UnknownError("the state belongs to another client")
        served = self.models.of(header.model, header.digest)
        if parts is not None:
            served.pool.check(parts)
        return served, header

    def _until(self) -> float:
        return time.time() + self.limits.keep

    async def state(self, session: Session) -> StateTensors | None:
        """Return a copy of the session's state."""
        return await self._run_in_engine(lambda: session.served.pool.state(session.slot))

    async def set_state(self, session: Session, parts: StateTensors | None) -> None:
        await self._run_in_engine(lambda: session.served.pool.set_state(session.slot, parts))

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
            until = self._until()

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
            await self.set_state(session, parts)
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
        idle = []
        for session in self._sessions.values():
            if session.used > late:
                break
            if not session.busy:
                idle.append(session)
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
