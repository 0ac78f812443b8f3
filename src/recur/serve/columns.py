"""One input each of many sessions in one message, answered in columns: for whoever holds sessions by the thousand.

A list of steps (recur.serve.steps) has an object for each session, read and checked name by name. Here what they have
in common is said once, and what is left of a session is its id, a number in and a number out.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recur.errors import OptionError, RecurError
from recur.serve.asked import draw_of, given, seed_of
from recur.serve.engine import FAILED
from recur.serve.errors import error_object, status_of
from recur.serve.inputs import inputs_of
from recur.serve.models import Served
from recur.serve.rows import Column, Draw, End, Event, Said
from recur.serve.sessions import Session
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from recur.serve.hub import Hub


@dataclass(slots=True)
class Part:
    """What a message has for one model."""

    places: list[int] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)


async def step_columns(hub: Hub, body: JsonObject, owner: str) -> JsonObject:
    """Lists as long as that of the sessions; where one cannot be stepped, null, and why under `errors`."""
    body = given(body)
    names, inputs = body.get("sessions"), body.get("inputs")
    if not isinstance(names, list) or not isinstance(inputs, list) or len(names) != len(inputs):
        raise OptionError("sessions and inputs must be two lists of one length: ids, and an input each")
    if len(names) > hub.limits.steps:
        raise OptionError(f"{len(names):,} sessions are too many for one message: at most {hub.limits.steps:,}")
    draw, seed = draw_of(body, 0.0), seed_of(body)
    parts, wrong = await _parts(hub, names, inputs, owner)
    said = [(part, _begin(hub, served, part, draw, seed)) for served, part in parts.items()]
    outputs: list[str | None] = [None] * len(names)
    tokens: list[int | None] = [None] * len(names)
    shares: list[float | None] = [None] * len(names)
    for part, future in said:
        event = await asyncio.shield(future)  # sessions are free when it has ended, whoever still listens
        if isinstance(event, End):
            wrong |= dict.fromkeys(part.places, event.error or RecurError(FAILED))
            continue
        texts = part.sessions[0].served.labels
        for k, label, share in zip(part.places, event.labels, event.probabilities, strict=True):
            if math.isfinite(share):
                outputs[k], tokens[k], shares[k] = texts[label], label, share
            else:
                wrong[k] = RecurError(FAILED)
    found: JsonObject = {"outputs": outputs, "labels": tokens, "probabilities": shares}
    if wrong:
        found["errors"] = {str(k): error_object(status_of(error), str(error)) for k, error in sorted(wrong.items())}
    return found


async def _parts(
    hub: Hub, names: list[Any], inputs: list[Any], owner: str
) -> tuple[dict[Served, Part], dict[int, Exception]]:
    """The sessions, held, by model; and what is wrong with the others, by place."""
    parts: dict[Served, Part] = {}
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
            network = session.served.network
            if type(x) is not int or network.numbers or not 0 <= x < network.width:
                try:
                    (x,) = inputs_of(x, session.served, hub)
                except (RecurError, ValueError) as error:
                    hub.sessions.release(session)
                    wrong[k] = error if isinstance(error, RecurError) else OptionError("one input of each session")
                    continue
            part = parts.get(session.served)
            if part is None:
                part = parts[session.served] = Part()
            part.places.append(k)
            part.sessions.append(session)
            part.inputs.append(x)
    except BaseException:
        for part in parts.values():
            _release(hub, part)
        raise
    return parts, wrong


def _begin(hub: Hub, served: Served, part: Part, draw: Draw, seed: int | None) -> asyncio.Future[Said | End]:
    done: asyncio.Future[Said | End] = asyncio.get_running_loop().create_future()

    def say(event: Event) -> None:
        assert isinstance(event, Said | End)
        _release(hub, part)
        done.set_result(event)

    for session, x in zip(part.sessions, part.inputs, strict=True):
        session.read((x,))
    slots = [session.slot for session in part.sessions]
    hub.engine.submit(Column(served, slots, part.inputs, say, draw, seed))
    return done


def _release(hub: Hub, part: Part) -> None:
    for session in part.sessions:
        hub.sessions.release(session)
