"""One input each of many sessions in one message, answered in columns: for whoever holds sessions by the thousand.

A list of steps (recur.serve.steps) has an object for each session, read and checked name by name. Here what they have
in common is said once, and what is left of a session is its id, a number in and a number out.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import (dataclass, field)
from typing import (TYPE_CHECKING, Any)
from recur.errors import (OptionError, RecurError)
from recur.serve.requests import (check_model, draw_of, drop_nulls, seed_of)
from recur.serve.responses import (error_object, status_of)
from recur.serve.requests import parse_inputs
from recur.serve.models import ServedModel
from recur.serve.sampling import NOT_FINITE
from recur.serve.rows import (StepBatch, SamplingParams, RowEnd, RowEvent, StepBatchOutput)
from recur.serve.sessions import Session
from recur.utils.types import JsonObject
from contextlib import suppress
from starlette.requests import Request
from starlette.websockets import (WebSocket, WebSocketDisconnect)
from recur.serve.requests import (check_model, draw_of, flag, drop_nulls, seed_of, short_string)
from recur.serve.http import requests
from recur.serve.http.requests import parse_json
from recur.serve.http.responses import encode_fairly
from recur.serve.rows import (RowEnd, StepOutput, StepRow)
from recur.serve.job import RequestJob

if TYPE_CHECKING:
    from recur.serve.registry import Registry

@dataclass(slots=True)
class ModelBatch:
    """What a message has for one model."""

    places: list[int] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)


async def step_columns(hub: Registry, body: JsonObject, owner: str) -> JsonObject:
    """Lists as long as that of the sessions; where one cannot be stepped, null, and why under `errors`."""
    body = drop_nulls(body)
    names, inputs = body.get("sessions"), body.get("inputs")
    if not isinstance(names, list) or not isinstance(inputs, list) or len(names) != len(inputs):
        raise OptionError("sessions and inputs must be two lists of one length: ids, and an input each")
    if len(names) > hub.limits.steps:
        raise OptionError(f"{len(names):,} sessions are too many for one message: at most {hub.limits.steps:,}")
    draw, seed = draw_of(body, 0.0), seed_of(body)
    parts, wrong = await _hold_sessions(hub, body, names, inputs, owner)
    said = [(part, _submit(hub, served, part, draw, seed)) for served, part in parts.items()]
    outputs: list[str | None] = [None] * len(names)
    tokens: list[int | None] = [None] * len(names)
    shares: list[float | None] = [None] * len(names)
    for part, future in said:
        event = await asyncio.shield(future)  # sessions are free when it has ended, whoever still listens
        if isinstance(event, RowEnd):
            wrong |= dict.fromkeys(part.places, event.error or RecurError(NOT_FINITE))
            continue
        texts = part.sessions[0].served.labels
        for k, label, share in zip(part.places, event.labels, event.probabilities, strict=True):
            if math.isfinite(share):
                outputs[k], tokens[k], shares[k] = texts[label], label, share
            else:
                wrong[k] = RecurError(NOT_FINITE)
    found: JsonObject = {"outputs": outputs, "labels": tokens, "probabilities": shares}
    if wrong:
        found["errors"] = {str(k): error_object(status_of(error), str(error)) for k, error in sorted(wrong.items())}
    return found


async def _hold_sessions(
    hub: Registry, body: JsonObject, names: list[Any], inputs: list[Any], owner: str
) -> tuple[dict[ServedModel, ModelBatch], dict[int, Exception]]:
    """The sessions, held, by model; and what is wrong with the others, by place."""
    parts: dict[ServedModel, ModelBatch] = {}
    wrong: dict[int, Exception] = {}
    try:
        for k, (name, x) in enumerate(zip(names, inputs, strict=True)):
            try:
                if not isinstance(name, str):
                    raise OptionError("a session's id is a text")
                session = await hub.sessions.hold(name, owner)
            except RecurError as error:
                wrong[k] = error
                continue
            try:
                check_model(body, session.served)
            except RecurError as error:
                hub.sessions.release(session)
                wrong[k] = error
                continue
            network = session.served.network
            if type(x) is not int or network.numbers or not 0 <= x < network.width:
                try:
                    (x,) = parse_inputs(x, session.served, hub)
                except (RecurError, ValueError) as error:
                    hub.sessions.release(session)
                    wrong[k] = error if isinstance(error, RecurError) else OptionError("one input of each session")
                    continue
            part = parts.get(session.served)
            if part is None:
                part = parts[session.served] = ModelBatch()
            part.places.append(k)
            part.sessions.append(session)
            part.inputs.append(x)
    except BaseException:
        for part in parts.values():
            _release_sessions(hub, part)
        raise
    return parts, wrong


def _submit(hub: Registry, served: ServedModel, part: ModelBatch, draw: SamplingParams, seed: int | None) -> asyncio.Future[StepBatchOutput | RowEnd]:
    done: asyncio.Future[StepBatchOutput | RowEnd] = asyncio.get_running_loop().create_future()

    def say(event: RowEvent) -> None:
        assert isinstance(event, StepBatchOutput | RowEnd)
        _release_sessions(hub, part)
        done.set_result(event)

    for session, x in zip(part.sessions, part.inputs, strict=True):
        session.read((x,))
    slots = [session.slot for session in part.sessions]
    hub.engine.submit(StepBatch(served, slots, part.inputs, say, draw, seed))
    return done


def _release_sessions(hub: Registry, part: ModelBatch) -> None:
    for session in part.sessions:
        hub.sessions.release(session)


CLOSE_RESTART = 1012
"""How a WebSocket is closed by a server that goes away."""
OUTPUT_FIELDS = ("output", "probability", "token")
"""Values of one output."""
PLAIN = {"session", "state", "input", "every"}
"""Of a step that asks for nothing else, nothing else is checked."""
STATE = 1 << 24
"""Characters of a state in a client's hands."""


@dataclass(slots=True)
class SessionStep:
    """One session's share of a message."""

    served: ServedModel
    inputs: Any
    session: Session | None
    steps: int = 0
    last: int = -1
    outputs: list[JsonObject] = field(default_factory=list)


async def begin_sessions(hub: Registry, request: Request, body: JsonObject, owner: str) -> list[JsonObject]:
    """Sessions that have read `input` each: one, or `n` of them; or one that goes on from a state."""
    body = drop_nulls(body)
    state, count = short_string(body, "state", STATE), requests.get_field(body, "n", 1, 1, min(1000, hub.limits.sessions))
    parts, about = None, None
    if state is not None:
        if count > 1:
            raise OptionError("a state begins one session: n = 1")
        served, about, parts = hub.sessions.from_token(state, owner)
        check_model(body, served)
    else:
        served = hub.models.get(short_string(body, "model"))
    inputs = parse_inputs(body["input"], served, hub) if "input" in body else []
    read = [*([served.lead] if served.writes and about is None else []), *inputs]  # one list for all sessions
    work, begun = RequestJob(hub.engine), []
    try:
        for _ in range(count):
            session = await hub.sessions.begin(served, owner)
            begun.append(session)
            row = StepRow(served, session.slot, read, work.sink())
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


class StepMessage:
    """Steps of one message, and what became of each."""

    def __init__(self, hub: Registry, owner: str) -> None:
        self.hub, self.owner = hub, owner
        self.work = RequestJob(hub.engine, collect=True)
        self.steps: list[SessionStep] = []
        self.values = 0
        """Of the answer; see Limits."""

    async def add(self, item: JsonObject, name: str | None = None) -> None:
        """`name`: of the session, where the address says it."""
        item = drop_nulls(item)
        name, state = name or short_string(item, "session"), short_string(item, "state", STATE)
        if (name is None) == (state is None):
            raise OptionError("say what is to go on: a session, by its id, or a state")
        session, parts = None, None
        if name is not None:
            session = await self.hub.sessions.hold(name, self.owner)
            step = SessionStep(session.served, (), session)
        else:
            assert state is not None
            served, about, parts = self.hub.sessions.from_token(state, self.owner)
            step = SessionStep(served, (), None, about.steps, about.last)
        try:
            self._row(step, item, parts)
        except BaseException:
            if session is not None:
                self.hub.sessions.release(session)
            raise

    def _row(self, step: SessionStep, item: JsonObject, parts: Any) -> None:
        if "input" not in item:
            raise OptionError("input is missing: a token, a text, or numbers")
        check_model(item, step.served)
        step.inputs = parse_inputs(item["input"], step.served, self.hub)
        options: JsonObject = {"every": "every" not in item or flag(item, "every")}
        if not item.keys() <= PLAIN:
            options |= {"draw": draw_of(item, 0.0), "seed": seed_of(item)}
            options["all_probabilities"] = flag(item, "probabilities")
        self._count(len(step.inputs) if options["every"] else 1, step.served, options.get("all_probabilities", False))
        # all of it checked before a slot is taken
        slot = step.session.slot if step.session is not None else self.work.take_slot(step.served)
        row = StepRow(step.served, slot, step.inputs, self.work.sink(), **options)
        if step.session is None:
            row.fresh, row.start, row.keep = True, parts, True
        self.work.add(row, owned=step.session is None)
        self.steps.append(step)

    def _count(self, outputs: int, served: ServedModel, all_probabilities: bool) -> None:
        """Refuse a step whose outputs would make the answer too large."""
        values = outputs * (len(OUTPUT_FIELDS) + (len(served.labels) if all_probabilities else 0))
        if self.values + values > self.hub.limits.values:
            raise OptionError(
                f"the answer would have {self.values + values:,} values, at most {self.hub.limits.values:,}: send "
                "fewer inputs, every: false, or no probabilities"
            )
        self.values += values

    async def run(self) -> list[JsonObject | RecurError]:
        """Return each session's outputs, or the error of its step."""
        try:
            self.work.begin()
            said = await self.work.whole() if self.steps else []
        finally:
            for step in self.steps:
                if step.session is not None:
                    step.session.read(step.inputs)
                    self.hub.sessions.release(step.session)
        found: list[JsonObject | RecurError] = []
        for step, (end,) in zip(self.steps, said, strict=True):
            assert isinstance(end, RowEnd)
            if end.error is not None:
                found.append(end.error if isinstance(end.error, RecurError) else RecurError(str(end.error)))
            else:
                found.append(self._result(step, end))
            await asyncio.sleep(0)
        return found

    def _result(self, step: SessionStep, end: RowEnd) -> JsonObject:
        outputs = [describe_output(reading, step.served) for reading in end.readings]
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


def describe_output(reading: StepOutput, served: ServedModel) -> JsonObject:
    found: JsonObject = {"output": served.labels[reading.label], "probability": reading.probability}
    if served.writes:
        found["token"] = reading.label
    if reading.probabilities is not None:
        found["probabilities"] = dict(zip(served.labels, reading.probabilities, strict=True))
    return found


async def step_one(hub: Registry, body: JsonObject, owner: str, name: str) -> JsonObject:
    message = StepMessage(hub, owner)
    await message.add(body, name)
    (found,) = await message.run()
    if isinstance(found, RecurError):
        raise found
    return found


async def step_many(hub: Registry, body: JsonObject, owner: str) -> JsonObject:
    """Many sessions at once, as a list of steps or in columns; what is wrong with one is said in its place."""
    if "sessions" in body:
        return await step_columns(hub, body, owner)
    items = body.get("steps")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise OptionError("give steps, a list of objects; or sessions and inputs, two lists of one length")
    if len(items) > hub.limits.steps:
        raise OptionError(f"{len(items):,} steps are too many for one message: at most {hub.limits.steps:,}")
    message, found = StepMessage(hub, owner), list[JsonObject | None]()
    try:
        for item in items:
            try:
                await message.add(item)
                found.append(None)
            except RecurError as error:
                found.append(_error_entry(error))
    except BaseException:
        message.give_up()
        raise
    made = (_error_entry(one) if isinstance(one, RecurError) else one for one in await message.run())
    return {"data": [next(made) if one is None else one for one in found]}


def _error_entry(error: RecurError) -> JsonObject:
    return {"error": error_object(status_of(error), str(error))}


# WebSockets -----------------------------------------------------------------------------------------------------


async def serve_socket(hub: Registry, socket: WebSocket, owner: str, name: str | None) -> None:
    """Messages are answered one by one, in their order; a client that does not read waits for itself alone."""
    await socket.accept()
    stopped = asyncio.ensure_future(hub.stopped.wait())
    try:
        while True:
            coming = asyncio.ensure_future(socket.receive())
            await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                await socket.close(CLOSE_RESTART, "the server is about to stop")
                return
            message = coming.result()
            if message["type"] == "websocket.disconnect":
                return
            await _reply(hub, socket, message.get("text") or message.get("bytes") or b"", owner, name)
    except (WebSocketDisconnect, RuntimeError, OSError):  # it has left while it was answered
        return
    finally:
        stopped.cancel()


async def _reply(hub: Registry, socket: WebSocket, content: str | bytes, owner: str, name: str | None) -> None:
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
        text = (await encode_fairly({**named, **found})).decode()
        await socket.send({"type": "websocket.send", "text": text})
