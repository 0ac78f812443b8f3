"""Sessions over HTTP and WebSockets: begun, stepped by tokens or numbers, handed out and ended.

One message steps one session or many; all that are under way at a time run as one batch.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.websockets import WebSocket, WebSocketDisconnect

from recur.errors import OptionError, RecurError
from recur.serve.asked import draw_of, flag, given, seed_of, word
from recur.serve.columns import step_columns
from recur.serve.errors import error_object, status_of
from recur.serve.inputs import inputs_of
from recur.serve.models import Served
from recur.serve.rows import End, Reading, StepRow
from recur.serve.sessions import Session
from recur.serve.work import Work
from recur.typedefs import JsonObject
from recur.web import fields
from recur.web.answers import encode
from recur.web.body import parse_json

if TYPE_CHECKING:
    from recur.serve.hub import Hub

RESTART = 1012
"""How a WebSocket is closed by a server that goes away."""
PLAIN = {"session", "state", "input", "every"}
"""Of a step that asks for nothing else, nothing else is checked."""
STATE = 1 << 24
"""Characters of a state in a client's hands."""


@dataclass(slots=True)
class Step:
    """One session's share of a message."""

    served: Served
    inputs: Any
    session: Session | None
    steps: int = 0
    last: int = -1
    outputs: list[JsonObject] = field(default_factory=list)


async def begin_sessions(hub: Hub, request: Request, body: JsonObject, owner: str) -> list[JsonObject]:
    """Sessions that have read `input` each: one, or `n` of them; or one that goes on from a state."""
    body = given(body)
    state, count = word(body, "state", STATE), fields.field(body, "n", 1, 1, min(1000, hub.limits.sessions))
    parts, about = None, None
    if state is not None:
        if count > 1:
            raise OptionError("a state begins one session: n = 1")
        served, about, parts = hub.sessions.from_token(state, owner)
    else:
        served = hub.models.get(word(body, "model"))
    inputs = inputs_of(body["input"], served, hub) if "input" in body else []
    first = [served.lead] if served.writes and about is None else []
    work, begun = Work(hub.engine), []
    try:
        for _ in range(count):
            session = await hub.sessions.begin(served, owner)
            begun.append(session)
            row = StepRow(served, session.slot, [*first, *inputs], work.sink())
            row.fresh, row.start = True, parts
            if about is not None:
                session.steps, session.last = about.steps, about.last
            session.read(inputs)
            work.add(row)
        work.begin()
        await hub.while_connected(request, work.whole())
    except BaseException:
        for session in begun:
            hub.sessions.drop(session)
        raise
    for session in begun:
        hub.sessions.release(session)
    return [hub.sessions.described(session) for session in begun]


class Message:
    """Steps of one message, and what became of each."""

    def __init__(self, hub: Hub, owner: str) -> None:
        self.hub, self.owner = hub, owner
        self.work = Work(hub.engine)
        self.steps: list[Step] = []

    async def add(self, item: JsonObject, name: str | None = None) -> None:
        """`name`: of the session, where the address says it."""
        item = given(item)
        name, state = name or word(item, "session"), word(item, "state", STATE)
        if (name is None) == (state is None):
            raise OptionError("say what is to go on: a session, by its id, or a state")
        session, parts = None, None
        if name is not None:
            session = await self.hub.sessions.hold(name, self.owner)
            step = Step(session.served, (), session)
        else:
            assert state is not None
            served, about, parts = self.hub.sessions.from_token(state, self.owner)
            step = Step(served, (), None, about.steps, about.last)
        try:
            self._row(step, item, parts)
        except BaseException:
            if session is not None:
                self.hub.sessions.release(session)
            raise

    def _row(self, step: Step, item: JsonObject, parts: Any) -> None:
        if "input" not in item:
            raise OptionError("input is missing: a token, a text, or numbers")
        step.inputs = inputs_of(item["input"], step.served, self.hub)
        options: JsonObject = {"every": "every" not in item or flag(item, "every")}
        if not item.keys() <= PLAIN:
            options |= {"draw": draw_of(item, 0.0), "seed": seed_of(item)}
            options["all_probabilities"] = flag(item, "probabilities")
        # all of it checked before a slot is taken
        slot = step.session.slot if step.session is not None else self.work.take_slot(step.served)
        row = StepRow(step.served, slot, step.inputs, self.work.sink(), **options)
        if step.session is None:
            row.fresh, row.start, row.keep = True, parts, True
        self.work.add(row, owned=step.session is None)
        self.steps.append(step)

    async def run(self) -> list[JsonObject]:
        """What each session says; an error where its step failed."""
        try:
            self.work.begin()
            said = await self.work.whole() if self.steps else []
        finally:
            for step in self.steps:
                if step.session is not None:
                    step.session.read(step.inputs)
                    self.hub.sessions.release(step.session)
        found = []
        for step, events in zip(self.steps, said, strict=True):
            (end,) = events
            assert isinstance(end, End)
            found.append(self._result(step, end))
        return found

    def _result(self, step: Step, end: End) -> JsonObject:
        outputs = [described(reading, step.served) for reading in end.readings]
        if step.session is not None:
            return {"session": step.session.id, "outputs": outputs}
        last = step.inputs[-1] if step.inputs and isinstance(step.inputs[-1], int) else step.last
        token = self.hub.sessions.token(step.served, self.owner, step.steps + len(step.inputs), last, end.state)
        return {"state": token, "outputs": outputs}

    def give_up(self) -> None:
        """Nothing of it was begun."""
        self.work.give_up()
        for step in self.steps:
            if step.session is not None:
                self.hub.sessions.release(step.session)


def described(reading: Reading, served: Served) -> JsonObject:
    found: JsonObject = {"output": served.labels[reading.label], "probability": reading.probability}
    if served.writes:
        found["token"] = reading.label
    if reading.probabilities is not None:
        found["probabilities"] = dict(zip(served.labels, reading.probabilities, strict=True))
    return found


async def step_one(hub: Hub, body: JsonObject, owner: str, name: str) -> JsonObject:
    message = Message(hub, owner)
    await message.add(body, name)
    (found,) = await message.run()
    return found


async def step_many(hub: Hub, body: JsonObject, owner: str) -> JsonObject:
    """Many sessions at once, as a list of steps or in columns; what is wrong with one is said in its place."""
    if "sessions" in body:
        return await step_columns(hub, body, owner)
    items = body.get("steps")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise OptionError("give steps, a list of objects; or sessions and inputs, two lists of one length")
    if len(items) > hub.limits.steps:
        raise OptionError(f"{len(items):,} steps are too many for one message: at most {hub.limits.steps:,}")
    message, found = Message(hub, owner), list[JsonObject | None]()
    try:
        for item in items:
            try:
                await message.add(item)
                found.append(None)
            except RecurError as error:
                found.append({"error": error_object(status_of(error), str(error))})
    except BaseException:
        message.give_up()
        raise
    made = iter(await message.run())
    return {"data": [next(made) if one is None else one for one in found]}


# WebSockets -----------------------------------------------------------------------------------------------------


async def talk(hub: Hub, socket: WebSocket, owner: str, name: str | None) -> None:
    """Messages are answered one by one, in their order; a client that does not read waits for itself alone."""
    await socket.accept()
    stopped = asyncio.ensure_future(hub.stopped.wait())
    try:
        while True:
            coming = asyncio.ensure_future(socket.receive())
            await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                await socket.close(RESTART, "the server is about to stop")
                return
            message = coming.result()
            if message["type"] == "websocket.disconnect":
                return
            await _reply(hub, socket, message.get("text") or message.get("bytes") or b"", owner, name)
    except (WebSocketDisconnect, RuntimeError, OSError):  # it has left while it was answered
        return
    finally:
        stopped.cancel()


async def _reply(hub: Hub, socket: WebSocket, content: str | bytes, owner: str, name: str | None) -> None:
    body = parse_json(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    named = {"id": body["id"]} if isinstance(body, dict) and isinstance(body.get("id"), str | int) else {}
    status = 200
    try:
        if not isinstance(body, dict):
            raise OptionError("a message must be a JSON object")
        hub.admit(owner)
        hub.in_flight += 1
        try:
            if name is not None:
                found = await step_one(hub, body, owner, name)
            else:
                found = await step_many(hub, body, owner)
        finally:
            hub.in_flight -= 1
    except RecurError as error:
        status = status_of(error)
        found = {"error": error_object(status, str(error))}
    hub.requests["websocket", status] += 1
    with suppress(RuntimeError):  # closed meanwhile
        await socket.send({"type": "websocket.send", "text": encode({**named, **found}).decode()})
