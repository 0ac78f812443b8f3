"""/v1/completions: continuations of prompts, as one JSON response or as server-sent events."""

from __future__ import annotations

import io
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from recur.data.text import BOS
from recur.serve.http.requests import validate
from recur.serve.http.responses import EncodedArray, json_response
from recur.serve.job import RequestJob
from recur.serve.models import ServedModel
from recur.serve.requests import CompletionParams, Prompt, check_model, resolve_completion, sampling_params
from recur.serve.responses import EventStream
from recur.serve.rows import (
    Detokenizer,
    GenerationRow,
    PromptLogprobs,
    RowEnd,
    RowEvent,
    StopBuffer,
    TextDelta,
    TokenLogprob,
)
from recur.serve.schemas import CompletionRequest
from recur.serve.sessions import Session
from recur.serve.state_pool import StateTensors
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.serve.registry import Registry


class CompletionChoice:
    """One choice of a completion. A stream keeps nothing; a complete response is kept as text and encoded JSON."""

    def __init__(self, served: ServedModel, prompt: Prompt, params: CompletionParams, index: int) -> None:
        self.served, self.prompt, self.request, self.index = served, prompt, params.request, index
        self.scores_prompt = params.scores_prompt
        self.count = 0
        self.reason = "length"
        self.state: StateTensors | None = None
        self.last: int | None = prompt.ids[-1] if prompt.ids else None
        self._text = io.StringIO()
        self._columns = {name: EncodedArray() for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
        self._echoed = False
        """Whether the prompt's text was sent."""
        self._placed, self._offset, self._detokenizer = 0, 0, Detokenizer(served.vocab)
        """Number of the prompt's tokens that were sent, and of their characters."""

    def handle(self, event: RowEvent) -> JsonObject | None:
        """Process an event of the row; return a chunk for the stream, or None if the event adds nothing to it."""
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
        if self.scores_prompt and not self._echoed:  # the prompt comes first
            text, self._echoed = self.prompt.text + text, True
        if self.request.stream:
            return self.chunk(text, tokens) if text or tokens else None
        self._text.write(text)
        for name, values in (self._logprobs(tokens) or {}).items():
            if values is not None:
                self._columns[name].extend(values)
        return None

    def chunk(self, text: str, tokens: list[TokenLogprob]) -> JsonObject:
        """Return a chunk of the stream."""
        return {"text": text, "index": self.index, "logprobs": self._logprobs(tokens), "finish_reason": None}

    def result(self) -> JsonObject:
        """Return the choice as the complete response has it."""
        text = self._text.getvalue()
        if self.request.echo and not self.scores_prompt:
            text = self.prompt.text + text
        columns: JsonObject | None = None if self.request.logprobs is None else {**self._columns}
        if columns is not None and not self.request.logprobs:
            columns["top_logprobs"] = None
        return {"text": text, "index": self.index, "logprobs": columns, "finish_reason": self.reason}

    def _prompt_tokens(self, scored: Sequence[TokenLogprob] | None = None) -> list[TokenLogprob]:
        """Return the prompt's tokens that were scored now, or all that are left, each with its offset.

        The start token that a client sent has no log probability, because nothing precedes it. Neither has the first
        token after a session's state: what precedes it is not known here.
        """
        if not self.scores_prompt:
            return []
        ids, found = self.prompt.ids, list[TokenLogprob]()
        if not self._placed and not self._echoed and self.prompt.begins:
            found.append(TokenLogprob(BOS, self.served.vocab.tokens[BOS], 0, None, None))
        unknown = len(ids) - self._placed if scored is None else int(self.request.resumes and not self._placed)
        texts = self.served.token_texts
        left = [TokenLogprob(k, texts[k], 0, None, None) for k in ids[self._placed : self._placed + unknown]]
        for token in (*left, *(scored or ())):
            found.append(token._replace(offset=self._offset))
            self._offset += len(self._detokenizer.add(token.id))
        self._placed += unknown + len(scored or ())
        return found

    def _logprobs(self, tokens: list[TokenLogprob]) -> JsonObject | None:
        if self.request.logprobs is None:
            return None
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [token.top for token in tokens] if self.request.logprobs else None,
            "text_offset": [token.offset for token in tokens],
        }


async def complete(registry: Registry, http_request: Request, body: JsonObject, owner: str) -> Response:
    """Answer a request for completions."""
    request = validate(CompletionRequest, body, registry.limits)
    start = await resolve_start(registry, request, owner)
    try:
        start.served.language  # noqa: B018  raises if the model generates no text
        job = CompletionJob(registry, start, resolve_completion(request, start.served, registry.limits), owner)
    except BaseException:
        if start.session is not None:
            registry.sessions.release(start.session)
        raise
    return await job.respond(http_request)


@dataclass(frozen=True)
class StartState:
    """Model of a request, and the state that the request resumes."""

    served: ServedModel
    session: Session | None = None
    parts: StateTensors | None = None
    steps: int = 0
    last: int = -1


async def resolve_start(registry: Registry, request: CompletionRequest, owner: str) -> StartState:
    """Resolve the session or the state of a request before its prompts: the session's model is the request's model.

    Token ids checked against another model would be out of range, or other words. The session is held afterwards.
    """
    if request.session is not None:
        held = await registry.sessions.hold(request.session, owner)
        try:
            check_model(request.model, held.served)
        except BaseException:
            registry.sessions.release(held)
            raise
        return StartState(held.served, held, None, held.steps, held.last)
    if request.state is not None:
        served, header, parts = registry.sessions.from_token(request.state, owner)
        check_model(request.model, served)
        return StartState(served, None, parts, header.steps, header.last)
    return StartState(registry.models.get(request.model))


class CompletionJob:
    """One request for completions: a row for each prompt and choice."""

    def __init__(self, registry: Registry, start: StartState, params: CompletionParams, owner: str) -> None:
        self.registry, self.start, self.params, self.owner = registry, start, params, owner
        self.request, served = params.request, start.served
        self.served = served
        count = 1 if self.request.stream else self.request.n * len(params.prompts)
        self.job = RequestJob(registry.engine, registry.limits.unread * count)
        self.session = start.session
        self.begun = False
        self.about: JsonObject = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": served.name,
            "system_fingerprint": served.digest,
        }
        prompts = [prompt for prompt in params.prompts for _ in range(self.request.n)]
        self.choices = [CompletionChoice(served, prompt, params, k) for k, prompt in enumerate(prompts)]

    async def respond(self, http_request: Request) -> Response:
        """Run the rows; return the stream at once, or the complete response when all rows have ended."""
        values = 0 if self.request.stream else self.params.values
        try:
            self.registry.reserve(values)
        except BaseException:
            self._release()
            raise
        try:
            self._begin()
        except BaseException:
            self.job.give_up()
            self._release()
            self.registry.release(values)
            raise
        if self.request.stream:
            return EventStream(self._chunks(), self._close)
        try:
            await self.registry.while_connected(
                http_request, lambda: self.job.run(lambda number, event: self.choices[number].handle(event))
            )
        except BaseException:
            self.registry.release(values)
            raise
        finally:
            self._release()
        choices = [choice.result() for choice in self.choices]
        content = {**self.about, "choices": choices, "usage": self._usage(), **self._carried()}
        return json_response(content, done=lambda: self.registry.release(values))

    # Rows ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        n, first_input = self.request.n, [] if self.request.resumes else [self.served.lead]
        for first in range(0, len(self.choices), n):
            inputs = [*first_input, *self.choices[first].prompt.ids]  # one list for the n rows that read it
            for choice in self.choices[first : first + n]:
                self._add(choice, inputs)
        self.job.begin()
        self.begun = True

    def _add(self, choice: CompletionChoice, inputs: list[int]) -> None:
        request, prompt, last = self.request, choice.prompt, self.start.last
        before = [*([last] if last >= 0 else []), *prompt.ids[-4:]]
        text = StopBuffer(Detokenizer(self.served.vocab, before), request.stop, len(prompt.text))
        slot = self.session.slot if self.session is not None else self.job.take_slot(self.served)
        row = GenerationRow(
            self.served,
            slot,
            inputs,
            self.job.sink(),
            sampling=sampling_params(request),
            seed=None if request.seed is None else f"{request.seed} {choice.index}",
            every=choice.scores_prompt,
            writes=request.max_tokens,
            text=text,
            logprobs=request.logprobs,
            stays=request.resumes,
        )
        row.fresh, row.start, row.keep = not request.resumes, self.start.parts, request.state is not None
        self.job.add(row, owned=self.session is None)

    def _release(self) -> None:
        if self.session is not None:
            self.registry.sessions.release(self.session)
            if self.begun:
                self.session.steps += len(self.choices[0].prompt.ids) + self.choices[0].count
                last = self.choices[0].last
                self.session.last = self.session.last if last is None else last
            self.session = None

    # Responses ----------------------------------------------------------------------------------------------------

    def _usage(self) -> JsonObject:
        read = sum(len(prompt.ids) for prompt in self.params.prompts)
        written = sum(choice.count for choice in self.choices)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    def _carried(self) -> JsonObject:
        """Return the session's id, or the state that the client sent as it is now."""
        if self.request.state is None:
            return {"session": self.request.session} if self.request.session is not None else {}
        choice = self.choices[0]
        steps = self.start.steps + len(choice.prompt.ids) + choice.count
        last = self.start.last if choice.last is None else choice.last
        return {"state": self.registry.sessions.token(self.served, self.owner, steps, last, choice.state)}

    async def _chunks(self) -> AsyncIterator[JsonObject]:
        for choice in self.choices:
            if self.request.echo and not choice.scores_prompt:
                yield self._chunk(choice.chunk(choice.prompt.text, []))
        while not self.job.ended or self.job.pending:
            for number, event in await self.job.take():
                made = self.choices[number].handle(event)
                if made is not None:
                    yield self._chunk(made)
        if self.request.stream_options.include_usage:
            yield {**self.about, "choices": [], "usage": self._usage()}

    def _chunk(self, choice: JsonObject) -> JsonObject:
        carried = self._carried() if choice["finish_reason"] is not None else {}
        usage = {"usage": None} if self.request.stream_options.include_usage else {}
        return {**self.about, "choices": [choice], **usage, **carried}

    async def _close(self, complete: bool) -> None:
        """Release the rows and the session once the stream has ended or its client has disconnected."""
        try:
            if not complete:
                self.job.cancel()
            await self.job.until_ended()
        finally:
            self._release()
