"""/v1/completions: continuations of prompts, as one JSON response or as server-sent events."""

from __future__ import annotations

import io
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from recur.data.text import BOS
from recur.errors import OptionError
from recur.serve.engine import RequestJob
from recur.serve.http import EncodedArray, EventStream, json_response
from recur.serve.models import ServedModel, check_ids, text_ids
from recur.serve.registry import Registry
from recur.serve.rows import (
    Detokenizer,
    GenerationRow,
    PromptLogprobs,
    RowEnd,
    RowEvent,
    StopBuffer,
    TextDelta,
    TokenLogprob,
    make_random,
)
from recur.serve.schemas import CompletionRequest, Limits
from recur.serve.sessions import StartState
from recur.serve.state_pool import StateTensors
from recur.utils.types import JsonObject


@dataclass(frozen=True)
class Prompt:
    """Prompt as token ids and as text."""

    ids: list[int]
    text: str
    begins: bool = False
    """Whether the client sent the start token <bos> itself; the model reads that token in any case."""


class CompletionChoice:
    """One choice of a completion. A stream keeps nothing; a complete response is kept as text and encoded JSON."""

    def __init__(self, served: ServedModel, prompt: Prompt, request: CompletionRequest, index: int) -> None:
        self.served, self.prompt, self.request, self.index = served, prompt, request, index
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
        if self.request.scores_prompt and not self._echoed:  # the prompt comes first
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
        if self.request.echo and not self.request.scores_prompt:
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
        if not self.request.scores_prompt:
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


async def complete(registry: Registry, http_request: Request, request: CompletionRequest) -> Response:
    """Answer a request for completions."""
    owner: str = http_request.scope["owner"]
    start = await registry.sessions.resume(request.model, owner, request.session, request.state)
    with registry.sessions.release_on_error(start.session):
        start.served.language  # noqa: B018  raises if the model generates no text
        prompts = [encode_prompt(prompt, start.served) for prompt in request.prompt]
        values = response_values(request, prompts, registry.limits)
        job = CompletionJob(registry, start, request, prompts, owner)
    return await job.respond(http_request, 0 if request.stream else values)


def encode_prompt(prompt: str | list[int], served: ServedModel) -> Prompt:
    """Return a prompt, given as text or as token ids, in both forms."""
    if isinstance(prompt, str):
        return Prompt(text_ids(prompt, served), prompt)
    check_ids(prompt, served)
    begins = prompt[0] == BOS
    ids = prompt[1:] if begins else prompt
    return Prompt(ids, served.vocab.decode(ids), begins)


def response_values(request: CompletionRequest, prompts: Sequence[Prompt], limits: Limits) -> int:
    """Return the number of tokens of the response, each counted with its log probabilities; refuse too many."""
    count = sum(len(prompt.ids) for prompt in prompts)
    if count > limits.prompt_tokens:
        raise OptionError(f"the prompt has {count:,} tokens: at most {limits.prompt_tokens:,}")
    choices, each = request.n * len(prompts), 1 + (request.logprobs or 0)
    if choices > limits.choices:
        raise OptionError(f"{choices:,} completions are too many for one request: at most {limits.choices}")
    values = (request.n * count * request.scores_prompt + choices * request.max_tokens) * each
    if values > limits.values:
        raise OptionError(
            f"the response would have {values:,} values, at most {limits.values:,}: lower n × max_tokens × "
            f"(1 + logprobs), which is {choices:,} × {request.max_tokens:,} × {each}"
            + (", and the number of echoed prompt tokens" if request.scores_prompt else "")
        )
    return values


class CompletionJob:
    """One request for completions: a row for each prompt and choice."""

    def __init__(
        self, registry: Registry, start: StartState, request: CompletionRequest, prompts: Sequence[Prompt], owner: str
    ) -> None:
        self.registry, self.start, self.request, self.owner = registry, start, request, owner
        self.served, self.session = start.served, start.session
        self.prompt_tokens = sum(len(prompt.ids) for prompt in prompts)
        self.begun = False
        self.about: JsonObject = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.served.name,
            "system_fingerprint": self.served.digest,
        }
        repeated = [prompt for prompt in prompts for _ in range(request.n)]
        self.choices = [CompletionChoice(self.served, prompt, request, k) for k, prompt in enumerate(repeated)]
        self.job = RequestJob(registry.engine, registry.limits.unread * (1 if request.stream else len(repeated)))

    async def respond(self, http_request: Request, values: int) -> Response:
        """Run the rows; return the stream at once, or the complete response when all rows have ended.

        values: size of a response that is held in memory until it is complete.
        """
        with ExitStack() as cleanup:
            cleanup.callback(self._release)
            self.registry.reserve(values)
            cleanup.callback(self.registry.release, values)
            cleanup.callback(self.job.give_up)
            self._begin()
            if not self.request.stream:
                await self.registry.while_connected(
                    http_request, lambda: self.job.run(lambda number, event: self.choices[number].handle(event))
                )
            cleanup.pop_all()
        if self.request.stream:
            return EventStream(self._chunks(), self._close)
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
            served=self.served,
            slot=slot,
            inputs=inputs,
            sink=self.job.sink(),
            sampling=request,
            random=make_random(request, None if request.seed is None else f"{request.seed} {choice.index}"),
            every=request.scores_prompt,
            writes=request.max_tokens,
            text=text,
            logprobs=request.logprobs,
            stays=request.resumes,
            fresh=not request.resumes,
            start=self.start.parts,
            keep=request.state is not None,
        )
        self.job.add(row, owned=self.session is None)

    def _progress(self) -> tuple[int, int]:
        """Return how many inputs the session or state has read now, and the last token."""
        choice = self.choices[0]
        steps = self.start.steps + len(choice.prompt.ids) + choice.count
        return steps, self.start.last if choice.last is None else choice.last

    def _release(self) -> None:
        if self.session is not None:
            self.registry.sessions.release(self.session)
            if self.begun:
                self.session.steps, self.session.last = self._progress()
            self.session = None

    # Responses ----------------------------------------------------------------------------------------------------

    def _usage(self) -> JsonObject:
        read, written = self.prompt_tokens, sum(choice.count for choice in self.choices)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    def _carried(self) -> JsonObject:
        """Return the session's id, or the state that the client sent as it is now."""
        if self.request.state is None:
            return {"session": self.request.session} if self.request.session is not None else {}
        state = self.choices[0].state
        return {"state": self.registry.sessions.token(self.served, self.owner, *self._progress(), state)}

    async def _chunks(self) -> AsyncIterator[JsonObject]:
        for choice in self.choices:
            if self.request.echo and not self.request.scores_prompt:
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
