"""Sessions over HTTP and WebSockets: created, stepped by tokens or numbers, and deleted.

One message steps one session or many; all sessions that are stepped at a time run as one batch. A message is a list of
steps, each an object that is checked by itself, or columns: one input for each of many sessions, with the options given
once. Columns are for clients with thousands of sessions.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.websockets import WebSocket, WebSocketDisconnect

from recur.errors import OptionError, RecurError
from recur.serve.engine import RequestJob
from recur.serve.http import encode_fairly, openai_error, parse_json, status_of, validate
from recur.serve.models import ServedModel, check_model, parse_inputs
from recur.serve.registry import Registry
from recur.serve.rows import RowEnd, RowEvent, StepBatch, StepBatchOutput, StepOutput, StepRow, make_random
from recur.serve.sampling import NOT_FINITE
from recur.serve.schemas import SessionRequest, StepColumnsRequest, StepListRequest, StepRequest
from recur.serve.sessions import Session, StartState
from recur.utils.types import JsonObject

CLOSE_RESTART = 1012
"""Close code of a WebSocket whose server stops."""
OUTPUT_FIELDS = ("output", "probability", "token")
"""Values of one output."""


async def begin_sessions(registry: Registry, http_request: Request, request: SessionRequest) -> JsonObject:
    """Create sessions that have read the input of the request; return one object, or a list if `n` was given."""
    owner: str = http_request.scope["owner"]
    start = await registry.sessions.resume(request.model, owner, None, request.state)
    served = start.served
    inputs = [] if request.input is None else parse_inputs(request.input, served, registry.limits)
    read = [*([served.lead] if served.writes and request.state is None else []), *inputs]  # one list for all sessions
    job, begun = RequestJob(registry.engine), list[Session]()
    try:
        for _ in range(request.n or 1):
            session = await registry.sessions.begin(served, owner)
            begun.append(session)
            session.steps, session.last = start.steps, start.last
            session.read(inputs)
            job.add(
                StepRow(served=served, slot=session.slot, inputs=read, sink=job.sink(), fresh=True, start=start.parts)
            )
        job.begin()
        await registry.while_connected(http_request, job.collect)
    except BaseException:
        for session in begun:
            registry.sessions.drop(session)
        raise
    for session in begun:
        registry.sessions.release(session)
    described = [registry.sessions.describe(session) for session in begun]
    return described[0] if request.n is None else {"object": "list", "data": described}


# Lists of steps -----------------------------------------------------------------------------------------------------


class StepMessage:
    """Steps of one message, and the result of each."""

    def __init__(self, registry: Registry, owner: str) -> None:
        self.registry, self.owner = registry, owner
        self.job = RequestJob(registry.engine, collect_errors=True)
        self.steps: list[tuple[StartState, Any]] = []
        """State that each step starts from, and its inputs."""
        self.values = 0
        """Number of values of the response; see Limits."""

    async def add(self, item: JsonObject, name: str | None = None) -> None:
        """Add a step. `name` is the session's id, if the address of the request has it."""
        request = validate(StepRequest, item, self.registry.limits)
        name = name or request.session
        if (name is None) == (request.state is None):
            raise OptionError("give either session, by its id, or state")
        start = await self.registry.sessions.resume(request.model, self.owner, name, request.state)
        with self.registry.sessions.release_on_error(start.session):
            self._add_row(start, request)

    def _add_row(self, start: StartState, request: StepRequest) -> None:
        served, session = start.served, start.session
        inputs = parse_inputs(request.input, served, self.registry.limits)
        self._count(len(inputs) if request.every else 1, served, request.probabilities)
        row = StepRow(
            served=served,
            # The slot is taken last: a step that is refused must not keep one.
            slot=session.slot if session is not None else self.job.take_slot(served),
            inputs=inputs,
            sink=self.job.sink(),
            sampling=request,
            random=make_random(request, request.seed),
            every=request.every,
            all_probabilities=request.probabilities,
            fresh=session is None,
            start=start.parts,
            keep=session is None,
        )
        self.job.add(row, owned=session is None)
        self.steps.append((start, inputs))

    def _count(self, outputs: int, served: ServedModel, all_probabilities: bool) -> None:
        """Refuse a step whose outputs would make the response too large."""
        values = outputs * (len(OUTPUT_FIELDS) + (len(served.labels) if all_probabilities else 0))
        if self.values + values > self.registry.limits.values:
            raise OptionError(
                f"the response would have {self.values + values:,} values, at most {self.registry.limits.values:,}: "
                "send fewer inputs, every: false, or no probabilities"
            )
        self.values += values

    async def run(self) -> list[JsonObject | RecurError]:
        """Return the outputs of each step, or its error."""
        try:
            self.job.begin()
            events = await self.job.collect() if self.steps else []
        finally:
            for start, inputs in self.steps:
                if start.session is not None:
                    start.session.read(inputs)
            self._release()
        found: list[JsonObject | RecurError] = []
        for (start, inputs), (end,) in zip(self.steps, events, strict=True):
            assert isinstance(end, RowEnd)
            if end.error is not None:
                found.append(end.error if isinstance(end.error, RecurError) else RecurError(str(end.error)))
            else:
                found.append(self._result(start, inputs, end))
            await asyncio.sleep(0)  # a message may have thousands of steps; other requests run in between
        return found

    def _result(self, start: StartState, inputs: Sequence[Any], end: RowEnd) -> JsonObject:
        outputs = [describe_output(output, start.served) for output in end.outputs]
        if start.session is not None:
            return {"session": start.session.id, "outputs": outputs}
        last = inputs[-1] if inputs and isinstance(inputs[-1], int) else start.last
        token = self.registry.sessions.token(start.served, self.owner, start.steps + len(inputs), last, end.state)
        return {"state": token, "outputs": outputs}

    def _release(self) -> None:
        for start, _ in self.steps:
            if start.session is not None:
                self.registry.sessions.release(start.session)

    def give_up(self) -> None:
        """Release the slots and sessions of a message that is not run."""
        self.job.give_up()
        self._release()


def describe_output(output: StepOutput, served: ServedModel) -> JsonObject:
    """Return an output as JSON."""
    found: JsonObject = {"output": served.labels[output.label], "probability": output.probability}
    if served.writes:
        found["token"] = output.label
    if output.probabilities is not None:
        found["probabilities"] = dict(zip(served.labels, output.probabilities, strict=True))
    return found


async def step_one(registry: Registry, body: JsonObject, owner: str, name: str) -> JsonObject:
    """Step one session."""
    message = StepMessage(registry, owner)
    await message.add(body, name)
    (found,) = await message.run()
    if isinstance(found, RecurError):
        raise found
    return found


async def step_many(registry: Registry, body: JsonObject, owner: str) -> JsonObject:
    """Step many sessions, given as a list of steps or in columns; report errors in place of a session's outputs."""
    if body.get("sessions") is not None:
        return await step_columns(registry, validate(StepColumnsRequest, body, registry.limits), owner)
    if not isinstance(body.get("steps"), list):
        raise OptionError("give steps, a list of objects; or sessions and inputs, two lists of one length")
    request = validate(StepListRequest, body, registry.limits)
    message, found = StepMessage(registry, owner), list[JsonObject | None]()
    try:
        for item in request.steps:
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


def _error_entry(error: Exception) -> JsonObject:
    return openai_error(status_of(error), str(error))


# Columns ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ModelBatch:
    """Sessions of one model in a message, and their inputs."""

    positions: list[int] = field(default_factory=list)
    """Index of each session in the message."""
    sessions: list[Session] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)


async def step_columns(registry: Registry, request: StepColumnsRequest, owner: str) -> JsonObject:
    """Return lists as long as the list of sessions: null for a session that failed, and its error in `errors`."""
    count = len(request.sessions)
    batches, errors = await _hold_sessions(registry, request, owner)
    pending = [(batch, _submit(registry, served, batch, request)) for served, batch in batches.items()]
    outputs: list[str | None] = [None] * count
    labels: list[int | None] = [None] * count
    probabilities: list[float | None] = [None] * count
    for batch, future in pending:
        # Shielded: the engine steps the sessions in any case, and they are released when it has.
        event = await asyncio.shield(future)
        if isinstance(event, RowEnd):
            errors |= dict.fromkeys(batch.positions, event.error or RecurError(NOT_FINITE))
            continue
        texts = batch.sessions[0].served.labels
        for k, label, probability in zip(batch.positions, event.labels, event.probabilities, strict=True):
            if math.isfinite(probability):
                outputs[k], labels[k], probabilities[k] = texts[label], label, probability
            else:
                errors[k] = RecurError(NOT_FINITE)
    found: JsonObject = {"outputs": outputs, "labels": labels, "probabilities": probabilities}
    if errors:
        found["errors"] = {str(k): _error_entry(error)["error"] for k, error in sorted(errors.items())}
    return found


async def _hold_sessions(
    registry: Registry, request: StepColumnsRequest, owner: str
) -> tuple[dict[ServedModel, ModelBatch], dict[int, Exception]]:
    """Return the sessions by model, each of them held; and the errors of the others by position."""
    batches: dict[ServedModel, ModelBatch] = {}
    errors: dict[int, Exception] = {}
    try:
        for k, (name, x) in enumerate(zip(request.sessions, request.inputs, strict=True)):
            try:
                if not isinstance(name, str):
                    raise OptionError("the id of a session must be a string")
                session = await registry.sessions.hold(name, owner)
            except RecurError as error:
                errors[k] = error
                continue
            try:
                check_model(request.model, session.served)
                network = session.served.network
                if type(x) is not int or network.numbers or not 0 <= x < network.width:
                    inputs = parse_inputs(x, session.served, registry.limits)
                    if len(inputs) != 1:
                        raise OptionError(f"each session takes one input, got {len(inputs)}")
                    x = inputs[0]
            except RecurError as error:
                registry.sessions.release(session)
                errors[k] = error
                continue
            batch = batches.get(session.served)
            if batch is None:
                batch = batches[session.served] = ModelBatch()
            batch.positions.append(k)
            batch.sessions.append(session)
            batch.inputs.append(x)
    except BaseException:
        for batch in batches.values():
            _release_sessions(registry, batch)
        raise
    return batches, errors


def _submit(
    registry: Registry, served: ServedModel, batch: ModelBatch, request: StepColumnsRequest
) -> asyncio.Future[StepBatchOutput | RowEnd]:
    """Submit the sessions of one model to the engine; release them when it has stepped them."""
    done: asyncio.Future[StepBatchOutput | RowEnd] = asyncio.get_running_loop().create_future()

    def handle(event: RowEvent) -> None:
        assert isinstance(event, StepBatchOutput | RowEnd)
        _release_sessions(registry, batch)
        done.set_result(event)

    for session, x in zip(batch.sessions, batch.inputs, strict=True):
        session.read((x,))
    slots = [session.slot for session in batch.sessions]
    random = make_random(request, request.seed)
    registry.engine.submit(StepBatch(served, slots, batch.inputs, handle, request, random))
    return done


def _release_sessions(registry: Registry, batch: ModelBatch) -> None:
    for session in batch.sessions:
        registry.sessions.release(session)


# WebSockets -----------------------------------------------------------------------------------------------------


async def serve_socket(registry: Registry, socket: WebSocket, owner: str, name: str | None) -> None:
    """Answer messages one by one, in their order: a client that does not read delays only itself."""
    await socket.accept()
    stopped = asyncio.ensure_future(registry.stopped.wait())
    try:
        while True:
            coming = asyncio.ensure_future(socket.receive())
            await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                await socket.close(CLOSE_RESTART, "the server is stopping")
                return
            message = coming.result()
            if message["type"] == "websocket.disconnect":
                return
            await _reply(registry, socket, message.get("text") or message.get("bytes") or b"", owner, name)
    except (WebSocketDisconnect, RuntimeError, OSError):  # the client has disconnected during the answer
        return
    finally:
        stopped.cancel()


async def _reply(registry: Registry, socket: WebSocket, content: str | bytes, owner: str, name: str | None) -> None:
    body = parse_json(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    named = {"id": body["id"]} if isinstance(body, dict) and isinstance(body.get("id"), str | int) else {}
    status = 200
    try:
        if not isinstance(body, dict):
            raise OptionError("a message must be a JSON object")
        registry.admit(owner)
        registry.in_flight += 1
        try:
            if name is not None:
                found = await step_one(registry, body, owner, name)
            else:
                found = await step_many(registry, body, owner)
        finally:
            registry.in_flight -= 1
    except RecurError as error:
        status, found = status_of(error), _error_entry(error)
    registry.requests["websocket", status] += 1
    with suppress(RuntimeError):  # closed meanwhile
        text = (await encode_fairly({**named, **found})).decode()
        await socket.send({"type": "websocket.send", "text": text})
