"""/v1/completions: texts that go on, whole or as they are written."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from recur.errors import OptionError
from recur.serve.asked import Asked, asked, check_model, given, word
from recur.serve.choices import Choice
from recur.serve.events import EventStream
from recur.serve.models import Served
from recur.serve.network import Parts
from recur.serve.rows import TextRow
from recur.serve.sessions import Session
from recur.serve.text import Pieces, Writing
from recur.serve.work import Work
from recur.typedefs import JsonObject
from recur.web.streaming import respond

if TYPE_CHECKING:
    from recur.serve.hub import Hub


async def completions(hub: Hub, request: Request, body: JsonObject, owner: str) -> Response:
    body = given(body)
    origin = await origin_of(hub, body, owner)
    try:
        origin.served.language  # noqa: B018  says why, if it is none
        made = Completion(hub, origin, asked(body, origin.served, hub.limits), owner)
    except BaseException:
        if origin.session is not None:
            hub.sessions.release(origin.session)
        raise
    return await made.answer(request)


@dataclass(frozen=True)
class Origin:
    """The model of a request, and the state that it resumes."""

    served: Served
    session: Session | None = None
    parts: Parts | None = None
    steps: int = 0
    last: int = -1


async def origin_of(hub: Hub, body: JsonObject, owner: str) -> Origin:
    """Resolve the session or the state of a request before anything else: its model is the model of the request.

    Tokens checked against another model would be out of range here, or other words. A session is held afterwards.
    """
    session, state = word(body, "session"), word(body, "state", 1 << 24)
    if session is not None and state is not None:
        raise OptionError("session and state are two ways to say what to go on from; give one")
    if session is not None:
        held = await hub.sessions.hold(session, owner)
        try:
            check_model(body, held.served)
        except BaseException:
            hub.sessions.release(held)
            raise
        return Origin(held.served, held, None, held.steps, held.last)
    if state is not None:
        served, about, parts = hub.sessions.from_token(state, owner)
        check_model(body, served)
        return Origin(served, None, parts, about.steps, about.last)
    return Origin(hub.models.get(word(body, "model")))


class Completion:
    """One request: a row for each prompt and choice."""

    def __init__(self, hub: Hub, origin: Origin, ask: Asked, owner: str) -> None:
        self.hub, self.origin, self.ask, self.owner = hub, origin, ask, owner
        served = self.served = origin.served
        count = 1 if ask.stream else ask.n * len(ask.prompts)
        self.work = Work(hub.engine, hub.limits.unread * count)
        self.session = origin.session
        self.steps, self.last = origin.steps, origin.last
        self.begun = False
        self.about: JsonObject = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": served.name,
            "system_fingerprint": served.digest,
        }
        every = [prompt for prompt in ask.prompts for _ in range(ask.n)]
        self.choices = [Choice(served, prompt, ask, k) for k, prompt in enumerate(every)]

    async def answer(self, request: Request) -> Response:
        values = 0 if self.ask.stream else self.ask.values
        try:
            self.hub.reserve(values)
        except BaseException:
            self._release()
            raise
        try:
            self._begin()
        except BaseException:
            self.work.give_up()
            self._release()
            self.hub.release(values)
            raise
        if self.ask.stream:
            return EventStream(self._chunks(), self._close)
        try:
            hearing = self.work.run(lambda number, event: self.choices[number].hear(event))
            await self.hub.while_connected(request, hearing)
        except BaseException:
            self.hub.release(values)
            raise
        finally:
            self._release()
        choices = [choice.whole() for choice in self.choices]
        whole = {**self.about, "choices": choices, "usage": self._usage(), **self._carried()}
        return respond(whole, done=lambda: self.hub.release(values))

    # Rows ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        lead = [] if self.ask.resumes else [self.served.lead]
        for first in range(0, len(self.choices), self.ask.n):
            inputs = [*lead, *self.choices[first].prompt.ids]  # one list for the n rows that read it
            for choice in self.choices[first : first + self.ask.n]:
                self._add(choice, inputs)
        self.work.begin()
        self.begun = True

    def _add(self, choice: Choice, inputs: list[int]) -> None:
        ask, prompt = self.ask, choice.prompt
        before = [*([self.last] if self.last >= 0 else []), *prompt.ids[-4:]]
        writing = Writing(Pieces(self.served.vocab, before), ask.stops, len(prompt.text))
        slot = self.session.slot if self.session is not None else self.work.take_slot(self.served)
        row = TextRow(
            self.served,
            slot,
            inputs,
            self.work.sink(),
            draw=ask.draw,
            seed=None if ask.seed is None else f"{ask.seed} {choice.index}",
            every=ask.echo and ask.logprobs is not None,
            writes=ask.max_tokens,
            writing=writing,
            logprobs=ask.logprobs,
            stays=ask.resumes,
        )
        row.fresh, row.start, row.keep = not ask.resumes, self.origin.parts, ask.state is not None
        self.work.add(row, owned=self.session is None)

    def _release(self) -> None:
        if self.session is not None:
            self.hub.sessions.release(self.session)
            if self.begun:
                self.session.steps += len(self.choices[0].prompt.ids) + self.choices[0].count
                last = self.choices[0].last
                self.session.last = self.session.last if last is None else last
            self.session = None

    # Answers ------------------------------------------------------------------------------------------------------

    def _usage(self) -> JsonObject:
        read = sum(len(prompt.ids) for prompt in self.ask.prompts)
        written = sum(choice.count for choice in self.choices)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    def _carried(self) -> JsonObject:
        """The state that a client brought, as it is now."""
        if self.ask.state is None:
            return {"session": self.ask.session} if self.ask.session is not None else {}
        choice = self.choices[0]
        steps = self.steps + len(choice.prompt.ids) + choice.count
        last = self.last if choice.last is None else choice.last
        return {"state": self.hub.sessions.token(self.served, self.owner, steps, last, choice.state)}

    async def _chunks(self) -> AsyncIterator[JsonObject]:
        for choice in self.choices:
            if self.ask.echo and not choice.judges:
                yield self._chunk(choice.chunk(choice.prompt.text, []))
        while not self.work.ended or self.work.pending:
            for number, event in await self.work.take():
                choice = self.choices[number]
                made = choice.hear(event)
                if made is not None:
                    yield self._chunk(made)
        if self.ask.usage:
            yield {**self.about, "choices": [], "usage": self._usage()}

    def _chunk(self, choice: JsonObject) -> JsonObject:
        more = self._carried() if choice["finish_reason"] is not None else {}
        return {**self.about, "choices": [choice], **({"usage": None} if self.ask.usage else {}), **more}

    async def _close(self, whole: bool) -> None:
        """The stream has ended, or its client is gone."""
        try:
            if not whole:
                self.work.cancel()
            await self.work.until_ended()
        finally:
            self._release()
