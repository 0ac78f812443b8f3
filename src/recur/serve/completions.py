"""One choice of a completion: its text and log probabilities, whole or in chunks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from recur.data.text import BOS
from recur.serve.requests import (CompletionParams, Prompt)
from recur.serve.http.responses import EncodedArray
from recur.serve.models import ServedModel
from recur.serve.state_pool import StateTensors
from recur.serve.rows import (RowEnd, RowEvent, PromptLogprobs, TextDelta)
from recur.serve.rows import (Detokenizer, TokenLogprob)
from recur.utils.types import JsonObject
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from starlette.requests import Request
from starlette.responses import Response
from recur.errors import OptionError
from recur.serve.requests import (CompletionParams, completion_params, check_model, drop_nulls, short_string)
from recur.serve.responses import EventStream
from recur.serve.http.responses import json_response
from recur.serve.rows import GenerationRow
from recur.serve.sessions import Session
from recur.serve.rows import (Detokenizer, StopBuffer)
from recur.serve.job import RequestJob

if TYPE_CHECKING:
    from recur.serve.registry import Registry

class CompletionChoice:
    """What became of one prompt. A stream keeps nothing; a whole answer is kept as text and encoded JSON."""

    def __init__(self, served: ServedModel, prompt: Prompt, ask: CompletionParams, index: int) -> None:
        self.served, self.prompt, self.ask, self.index = served, prompt, ask, index
        self.judges = ask.echo and ask.logprobs is not None
        self.count = 0
        self.reason = "length"
        self.state: StateTensors | None = None
        self.last: int | None = prompt.ids[-1] if prompt.ids else None
        self._text = io.StringIO()
        self._columns = {name: EncodedArray() for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
        self._echoed = False
        """Whether the prompt's text was shown."""
        self._placed, self._offset, self._pieces = 0, 0, Detokenizer(served.vocab)
        """How many tokens of the prompt were shown, and how many characters these are."""

    def hear(self, event: RowEvent) -> JsonObject | None:
        """Take in an event of the row; return a chunk of the stream, if the event is worth one."""
        if isinstance(event, PromptLogprobs):
            return self._show("", self._prompt_tokens(event.tokens))
        if isinstance(event, TextDelta):
            self.count += 1
            self.last = event.token
            return self._show(event.text, self._prompt_tokens() + event.tokens)
        assert isinstance(event, RowEnd)
        self.state = event.state
        self.reason = "stop" if event.reason == "stop" else "length"
        made = self._show("", self._prompt_tokens()) or {"text": "", "index": self.index, "logprobs": None}
        return {**made, "finish_reason": self.reason}

    def _show(self, text: str, tokens: list[TokenLogprob]) -> JsonObject | None:
        if self.judges and not self._echoed:  # the prompt comes first
            text, self._echoed = self.prompt.text + text, True
        if self.ask.stream:
            return self.chunk(text, tokens) if text or tokens else None
        self._text.write(text)
        for name, values in (self._logprobs(tokens) or {}).items():
            if values is not None:
                self._columns[name].extend(values)
        return None

    def chunk(self, text: str, tokens: list[TokenLogprob]) -> JsonObject:
        return {"text": text, "index": self.index, "logprobs": self._logprobs(tokens), "finish_reason": None}

    def whole(self) -> JsonObject:
        text = self._text.getvalue()
        if self.ask.echo and not self.judges:
            text = self.prompt.text + text
        columns: JsonObject | None = None if self.ask.logprobs is None else {**self._columns}
        if columns is not None and not self.ask.logprobs:
            columns["top_logprobs"] = None
        return {"text": text, "index": self.index, "logprobs": columns, "finish_reason": self.reason}

    def _prompt_tokens(self, judged: Sequence[TokenLogprob] | None = None) -> list[TokenLogprob]:
        """Tokens of the prompt that were judged now, or all that are left, each with its offset.

        Nothing stands before a beginning that was written out, and before what a session resumes stands what is not
        known here: these have no log probability.
        """
        if not self.judges:
            return []
        ids, found = self.prompt.ids, list[TokenLogprob]()
        if not self._placed and not self._echoed and self.prompt.begins:
            found.append(TokenLogprob(BOS, self.served.vocab.tokens[BOS], 0, None, None))
        unknown = len(ids) - self._placed if judged is None else int(self.ask.resumes and not self._placed)
        texts = self.served.token_texts
        left = [TokenLogprob(k, texts[k], 0, None, None) for k in ids[self._placed : self._placed + unknown]]
        for token in (*left, *(judged or ())):
            found.append(token._replace(offset=self._offset))
            self._offset += len(self._pieces.add(token.id))
        self._placed += unknown + len(judged or ())
        return found

    def _logprobs(self, tokens: list[TokenLogprob]) -> JsonObject | None:
        if self.ask.logprobs is None:
            return None
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [token.top for token in tokens] if self.ask.logprobs else None,
            "text_offset": [token.offset for token in tokens],
        }


async def complete(hub: Registry, request: Request, body: JsonObject, owner: str) -> Response:
    body = drop_nulls(body)
    origin = await resolve_start(hub, body, owner)
    try:
        origin.served.language  # noqa: B018  says why, if it is none
        made = CompletionJob(hub, origin, completion_params(body, origin.served, hub.limits), owner)
    except BaseException:
        if origin.session is not None:
            hub.sessions.release(origin.session)
        raise
    return await made.answer(request)


@dataclass(frozen=True)
class StartState:
    """The model of a request, and the state that it resumes."""

    served: ServedModel
    session: Session | None = None
    parts: StateTensors | None = None
    steps: int = 0
    last: int = -1


async def resolve_start(hub: Registry, body: JsonObject, owner: str) -> StartState:
    """Resolve the session or the state of a request before anything else: its model is the model of the request.

    Tokens checked against another model would be out of range here, or other words. A session is held afterwards.
    """
    session, state = short_string(body, "session"), short_string(body, "state", 1 << 24)
    if session is not None and state is not None:
        raise OptionError("session and state are two ways to say what to go on from; give one")
    if session is not None:
        held = await hub.sessions.hold(session, owner)
        try:
            check_model(body, held.served)
        except BaseException:
            hub.sessions.release(held)
            raise
        return StartState(held.served, held, None, held.steps, held.last)
    if state is not None:
        served, about, parts = hub.sessions.from_token(state, owner)
        check_model(body, served)
        return StartState(served, None, parts, about.steps, about.last)
    return StartState(hub.models.get(short_string(body, "model")))


class CompletionJob:
    """One request: a row for each prompt and choice."""

    def __init__(self, hub: Registry, origin: StartState, ask: CompletionParams, owner: str) -> None:
        self.hub, self.origin, self.ask, self.owner = hub, origin, ask, owner
        served = self.served = origin.served
        count = 1 if ask.stream else ask.n * len(ask.prompts)
        self.work = RequestJob(hub.engine, hub.limits.unread * count)
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
        self.choices = [CompletionChoice(served, prompt, ask, k) for k, prompt in enumerate(every)]

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
        return json_response(whole, done=lambda: self.hub.release(values))

    # Rows ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        lead = [] if self.ask.resumes else [self.served.lead]
        for first in range(0, len(self.choices), self.ask.n):
            inputs = [*lead, *self.choices[first].prompt.ids]  # one list for the n rows that read it
            for choice in self.choices[first : first + self.ask.n]:
                self._add(choice, inputs)
        self.work.begin()
        self.begun = True

    def _add(self, choice: CompletionChoice, inputs: list[int]) -> None:
        ask, prompt = self.ask, choice.prompt
        before = [*([self.last] if self.last >= 0 else []), *prompt.ids[-4:]]
        writing = StopBuffer(Detokenizer(self.served.vocab, before), ask.stops, len(prompt.text))
        slot = self.session.slot if self.session is not None else self.work.take_slot(self.served)
        row = GenerationRow(
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
