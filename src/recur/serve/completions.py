"""/v1/completions: texts that go on, whole or as they are written."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from recur.serve.asked import Asked, Prompt, asked, given, word
from recur.serve.events import EventStream
from recur.serve.models import Served
from recur.serve.network import Parts
from recur.serve.rows import End, Event, Judged, Piece, TextRow
from recur.serve.sessions import Session
from recur.serve.text import Pieces, Token, Writing
from recur.serve.work import Work
from recur.text import BOS
from recur.typedefs import JsonObject
from recur.web.answers import Answer

if TYPE_CHECKING:
    from recur.serve.hub import Hub


async def completions(hub: Hub, request: Request, body: JsonObject, owner: str) -> Response:
    body = given(body)
    served = hub.models.get(word(body, "model"))
    served.language  # noqa: B018  says why, if it is none
    ask = asked(body, served, hub.limits)
    return await Completion(hub, served, ask, owner).answer(request)


class Completion:
    """One request: a row for each prompt and choice."""

    def __init__(self, hub: Hub, served: Served, ask: Asked, owner: str) -> None:
        self.hub, self.served, self.ask, self.owner = hub, served, ask, owner
        self.work = Work(hub.engine, hub.limits.unread if ask.stream else None)
        self.session: Session | None = None
        self.steps, self.last = 0, -1
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
        try:
            await self._begin()
        except BaseException:
            self.work.give_up()
            self._release()
            raise
        if self.ask.stream:
            return EventStream(self._chunks(), self._close)
        try:
            said = await self.hub.while_connected(request, self.work.whole())
            for choice, events in zip(self.choices, said, strict=True):
                for event in events:
                    choice.hear(event)
        finally:
            self._release()
        choices = [choice.whole() for choice in self.choices]
        return Answer({**self.about, "choices": choices, "usage": self._usage(), **self._carried()})

    # Rows ---------------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        parts = None
        ask = self.ask
        if ask.session is not None:
            self.session = await self.hub.sessions.hold(ask.session, self.owner)
            self.served, self.steps, self.last = self.session.served, self.session.steps, self.session.last
        elif ask.state is not None:
            self.served, about, parts = self.hub.sessions.from_token(ask.state, self.owner)
            self.steps, self.last = about.steps, about.last
        for choice in self.choices:
            self._add(choice, parts)
        self.work.begin()

    def _add(self, choice: Choice, parts: Parts | None) -> None:
        ask, prompt = self.ask, choice.prompt
        going_on = self.session is not None or ask.state is not None
        before = [*([self.last] if self.last >= 0 else []), *prompt.ids[-4:]]
        writing = Writing(Pieces(self.served.vocab, before), ask.stops, len(prompt.text))
        slot = self.session.slot if self.session is not None else self.work.take_slot(self.served)
        row = TextRow(
            self.served,
            slot,
            list(prompt.ids) if going_on else [self.served.lead, *prompt.ids],
            self.work.sink(),
            draw=ask.draw,
            seed=None if ask.seed is None else f"{ask.seed} {choice.index}",
            every=ask.echo and ask.logprobs is not None,
            writes=ask.max_tokens,
            writing=writing,
            logprobs=ask.logprobs,
            stays=going_on,
        )
        row.fresh, row.start, row.keep = not going_on, parts, ask.state is not None
        self.work.add(row, owned=self.session is None)

    def _release(self) -> None:
        if self.session is not None:
            self.hub.sessions.release(self.session)
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


class Choice:
    """What became of one prompt."""

    def __init__(self, served: Served, prompt: Prompt, ask: Asked, index: int) -> None:
        self.served, self.prompt, self.ask, self.index = served, prompt, ask, index
        self.judges = ask.echo and ask.logprobs is not None
        self.count = 0
        self.reason = "length"
        self.state: Parts | None = None
        self.last: int | None = prompt.ids[-1] if prompt.ids else None
        self._text: list[str] = []
        self._tokens: list[Token] = []
        self._judged: list[Token] = []

    def hear(self, event: Event) -> JsonObject | None:
        """Take in what the row says; a chunk of the stream, where it is worth one."""
        if isinstance(event, Judged):
            self._judged += event.tokens
            return None
        if isinstance(event, Piece):
            self.count += 1
            self.last = event.token
            return self._show(event.text, event.tokens)
        assert isinstance(event, End)
        self.state = event.state
        self.reason = "stop" if event.reason == "stop" else "length"
        made = self._show("", []) or {"text": "", "index": self.index, "logprobs": None}
        return {**made, "finish_reason": self.reason}

    def _show(self, text: str, tokens: list[Token]) -> JsonObject | None:
        if self.judges and not self._text:  # the prompt comes first
            text, tokens = self.prompt.text + text, self._prompt_tokens() + tokens
        self._text.append(text)
        self._tokens += tokens
        return self.chunk(text, tokens) if text or tokens else None

    def chunk(self, text: str, tokens: list[Token]) -> JsonObject:
        return {"text": text, "index": self.index, "logprobs": self._logprobs(tokens), "finish_reason": None}

    def whole(self) -> JsonObject:
        text = "".join(self._text)
        if self.ask.echo and not self.judges:
            text = self.prompt.text + text
        return {
            "text": text,
            "index": self.index,
            "logprobs": self._logprobs(self._tokens),
            "finish_reason": self.reason,
        }

    def _prompt_tokens(self) -> list[Token]:
        """Those of the prompt, each with where it stands. Nothing stands before a beginning that was written out, and
        before what a session goes on with stands what is not known here."""
        first = [Token(BOS, self.served.vocab.tokens[BOS], 0, None, None)] if self.prompt.begins else []
        known = {len(self.prompt.ids) - len(self._judged) + k: token for k, token in enumerate(self._judged)}
        pieces, offset, found = Pieces(self.served.vocab), 0, []
        for k, token in enumerate(self.prompt.ids):
            told = known.get(k, Token(token, self.served.token_texts[token], 0, None, None))
            found.append(told._replace(offset=offset))
            offset += len(pieces.add(token))
        return first + found

    def _logprobs(self, tokens: list[Token]) -> JsonObject | None:
        if self.ask.logprobs is None:
            return None
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [token.top for token in tokens] if self.ask.logprobs else None,
            "text_offset": [token.offset for token in tokens],
        }
