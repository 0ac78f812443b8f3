"""SessionManager by id: in a slot of memory while they are used, on disk or gone when they are not.

All of this is the server's thread's. It asks the engine for copies of states, which are the engine's.
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
"""SessionManager that leave memory together."""
DISK_SWEEP = 60.0
"""Seconds between two looks at what lies on disk."""
ID_DIGITS = 24
"""Hexadecimal digits of an id."""

log = logging.getLogger("recur.serve")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Session:
    id: str
    served: ServedModel
    owner: str
    slot: int
    created: float
    used: float
    steps: int = 0
    """Inputs that it has read."""
    last: int = -1
    """The last token that it has read; −1 where there is none."""
    busy: bool = False

    def read(self, inputs: Sequence[object]) -> None:
        """Count what it is about to read."""
        self.steps += len(inputs)
        if inputs and isinstance(inputs[-1], int):
            self.last = inputs[-1]


class SessionManager:
    def __init__(
        self,
        models: ModelVersions,
        engine: Engine,
        limits: Limits,
        seal: StateSigner,
        store: SessionStore | None = None,
    ) -> None:
        self.models, self.engine, self.limits, self.seal, self.store = models, engine, limits, seal, store
        self._kept: OrderedDict[str, Session] = OrderedDict()
        """Whoever was used last stands last."""
        self._moving: dict[str, asyncio.Future[None]] = {}
        """Between memory and disk."""
        self._swept = 0.0
        self.expired = self.spilled = self.restored = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def stored(self) -> int:
        return self.store.count if self.store is not None else 0

    # Begun, used, ended -------------------------------------------------------------------------------------------

    async def begin(self, served: ServedModel, owner: str) -> Session:
        """A new session, in use."""
        await self._make_room(1)
        return self._enter(secrets.token_hex(ID_DIGITS // 2), served, owner)

    def _enter(self, name: str, served: ServedModel, owner: str) -> Session:
        slot = served.pool.take()
        if slot is None:
            raise BusyError("no place for another session; try again in a moment")
        now = time.time()
        session = self._kept[name] = Session(name, served, owner, slot, now, now, busy=True)
        return session

    @asynccontextmanager
    async def use(self, name: str, owner: str) -> AsyncIterator[Session]:
        """A session for one request, which others wait for in vain meanwhile."""
        session = await self.hold(name, owner)
        try:
            yield session
        finally:
            self.release(session)

    async def hold(self, name: str, owner: str) -> Session:
        session = self._kept.get(name)
        if session is None:
            session = await self._restore(name, owner)
        if session is None or session.owner != owner:
            raise UnknownError(f"there is no session {name[:100]!r}: it has ended, or never was")
        if session.served.over:
            self.drop(session)
            raise UnknownError(f"session {name} has ended: {session.served.name} has other weights now; begin anew")
        if session.busy:
            raise ConflictError(f"session {name} is in use: it takes one request after the other")
        session.busy = True
        return session

    def release(self, session: Session) -> None:
        session.busy = False
        session.used = time.time()
        if session.id in self._kept:
            self._kept.move_to_end(session.id)

    def drop(self, session: Session) -> None:
        """End a session."""
        if self._kept.pop(session.id, None) is not None:
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

    # In a client's hands ------------------------------------------------------------------------------------------

    def token(self, served: ServedModel, owner: str, steps: int, last: int, parts: StateTensors | None) -> str:
        return self.seal.token(StateHeader(served.name, served.digest, owner, steps, last, self._until()), parts)

    def from_token(self, token: str, owner: str) -> tuple[ServedModel, StateHeader, StateTensors | None]:
        about, parts = self.seal.open(token, time.time())
        return (*self._checked(about, parts, owner), parts)

    def _checked(self, about: StateHeader, parts: StateTensors | None, owner: str) -> tuple[ServedModel, StateHeader]:
        if about.owner != owner:
            raise UnknownError("the session is another client's")
        served = self.models.of(about.model, about.digest)
        if parts is not None:
            served.pool.check(parts)
        return served, about

    def _until(self) -> float:
        return time.time() + self.limits.keep

    async def state(self, session: Session) -> StateTensors | None:
        """A copy of what it carries."""
        return await self._ask(lambda: session.served.pool.state(session.slot))

    async def set_state(self, session: Session, parts: StateTensors | None) -> None:
        await self._ask(lambda: session.served.pool.set_state(session.slot, parts))

    async def _ask(self, work: Callable[[], Result]) -> Result:
        return await asyncio.wrap_future(self.engine.call(work))

    # On disk ------------------------------------------------------------------------------------------------------

    async def _make_room(self, count: int) -> None:
        """Have the sessions that were not used for longest leave, if there are too many."""
        if len(self._kept) + count <= self.limits.sessions:
            return
        idle = [session for session in self._kept.values() if not session.busy]
        if self.store is None or not idle or self.store.count >= self.limits.stored:
            raise BusyError(f"there are {len(self._kept):,} sessions, and no place for more; end one, or wait")
        await self._spill(idle[: min(SPILL_BATCH, max(count, len(idle) // 16))])

    async def _spill(self, sessions: list[Session]) -> None:
        """Write sessions to disk; where that fails, they stay."""
        store, loop = self.store, asyncio.get_running_loop()
        assert store is not None
        done = loop.create_future()
        for session in sessions:
            session.busy = True
            self._kept.pop(session.id)
            self._moving[session.id] = done
        written = 0
        try:
            copies = await self._ask(lambda: [session.served.pool.state(session.slot) for session in sessions])
            until = self._until()

            def write() -> int:
                for k, (session, parts) in enumerate(zip(sessions, copies, strict=True)):
                    served = session.served
                    about = StateHeader(served.name, served.digest, session.owner, session.steps, session.last, until)
                    try:
                        store.put(session.id, about, parts)
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
                    self._kept[session.id] = session
            self.spilled += written
            done.set_result(None)
        if written < len(sessions):
            raise BusyError("sessions cannot be written to disk, and memory has no place for more")

    async def _restore(self, name: str, owner: str) -> Session | None:
        """A session from disk."""
        while (moving := self._moving.get(name)) is not None:
            await asyncio.shield(moving)
            if name in self._kept:
                return self._kept[name]
        store = self.store
        if store is None or len(name) != ID_DIGITS or not name.isascii() or not name.isalnum() or not store.has(name):
            return None
        done = self._moving[name] = asyncio.get_running_loop().create_future()
        try:
            about = await to_thread.run_sync(store.about, name)
            if about.owner != owner or about.until < time.time():
                return None
            served = self.models.of(about.model, about.digest)
            await self._make_room(1)
            about, parts = await to_thread.run_sync(store.take, name)
            self._checked(about, parts, owner)
            session = self._enter(name, served, owner)
            await self.set_state(session, parts)
            session.steps, session.last, session.busy = about.steps, about.last, False
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
        """End a session, wherever it is."""
        self.drop(await self.hold(name, owner))

    async def sweep(self) -> None:
        """Have those leave that nobody has used for long."""
        late = time.time() - self.limits.idle
        for served in {session.served for session in self._kept.values() if session.served.over}:
            for session in [each for each in self._kept.values() if each.served is served and not each.busy]:
                self.drop(session)
        idle = []
        for session in self._kept.values():
            if session.used > late:
                break
            if not session.busy:
                idle.append(session)
        for k in range(0, len(idle), SPILL_BATCH):
            some = [session for session in idle[k : k + SPILL_BATCH] if session.id in self._kept and not session.busy]
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
        """Write as many as there is time for to disk, the server being about to stop; how many are lost."""
        end = time.monotonic() + seconds
        while self.store is not None and time.monotonic() < end:
            idle = [session for session in self._kept.values() if not session.busy and not session.served.over]
            if not idle:
                break
            try:
                await self._spill(idle[-SPILL_BATCH:])
            except RecurError:
                break
        return len(self._kept)
