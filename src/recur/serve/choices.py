"""One choice of a completion: its text and log probabilities, whole or in chunks."""

from __future__ import annotations

import io
from collections.abc import Sequence

from recur.serve.asked import Asked, Prompt
from recur.serve.models import Served
from recur.serve.network import Parts
from recur.serve.rows import End, Event, Judged, Piece
from recur.serve.text import Pieces, Token
from recur.text import BOS
from recur.typedefs import JsonObject
from recur.web.streaming import Encoded


class Choice:
    """What became of one prompt. A stream keeps nothing; a whole answer is kept as text and encoded JSON."""

    def __init__(self, served: Served, prompt: Prompt, ask: Asked, index: int) -> None:
        self.served, self.prompt, self.ask, self.index = served, prompt, ask, index
        self.judges = ask.echo and ask.logprobs is not None
        self.count = 0
        self.reason = "length"
        self.state: Parts | None = None
        self.last: int | None = prompt.ids[-1] if prompt.ids else None
        self._text = io.StringIO()
        self._columns = {name: Encoded() for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
        self._echoed = False
        """Whether the prompt's text was shown."""
        self._placed, self._offset, self._pieces = 0, 0, Pieces(served.vocab)
        """How many tokens of the prompt were shown, and how many characters these are."""

    def hear(self, event: Event) -> JsonObject | None:
        """Take in an event of the row; return a chunk of the stream, if the event is worth one."""
        if isinstance(event, Judged):
            return self._show("", self._prompt_tokens(event.tokens))
        if isinstance(event, Piece):
            self.count += 1
            self.last = event.token
            return self._show(event.text, self._prompt_tokens() + event.tokens)
        assert isinstance(event, End)
        self.state = event.state
        self.reason = "stop" if event.reason == "stop" else "length"
        made = self._show("", self._prompt_tokens()) or {"text": "", "index": self.index, "logprobs": None}
        return {**made, "finish_reason": self.reason}

    def _show(self, text: str, tokens: list[Token]) -> JsonObject | None:
        if self.judges and not self._echoed:  # the prompt comes first
            text, self._echoed = self.prompt.text + text, True
        if self.ask.stream:
            return self.chunk(text, tokens) if text or tokens else None
        self._text.write(text)
        for name, values in (self._logprobs(tokens) or {}).items():
            if values is not None:
                self._columns[name].extend(values)
        return None

    def chunk(self, text: str, tokens: list[Token]) -> JsonObject:
        return {"text": text, "index": self.index, "logprobs": self._logprobs(tokens), "finish_reason": None}

    def whole(self) -> JsonObject:
        text = self._text.getvalue()
        if self.ask.echo and not self.judges:
            text = self.prompt.text + text
        columns: JsonObject | None = None if self.ask.logprobs is None else {**self._columns}
        if columns is not None and not self.ask.logprobs:
            columns["top_logprobs"] = None
        return {"text": text, "index": self.index, "logprobs": columns, "finish_reason": self.reason}

    def _prompt_tokens(self, judged: Sequence[Token] | None = None) -> list[Token]:
        """Tokens of the prompt that were judged now, or all that are left, each with its offset.

        Nothing stands before a beginning that was written out, and before what a session resumes stands what is not
        known here: these have no log probability.
        """
        if not self.judges:
            return []
        ids, found = self.prompt.ids, list[Token]()
        if not self._placed and not self._echoed and self.prompt.begins:
            found.append(Token(BOS, self.served.vocab.tokens[BOS], 0, None, None))
        unknown = len(ids) - self._placed if judged is None else int(self.ask.resumes and not self._placed)
        texts = self.served.token_texts
        left = [Token(k, texts[k], 0, None, None) for k in ids[self._placed : self._placed + unknown]]
        for token in (*left, *(judged or ())):
            found.append(token._replace(offset=self._offset))
            self._offset += len(self._pieces.add(token.id))
        self._placed += unknown + len(judged or ())
        return found

    def _logprobs(self, tokens: list[Token]) -> JsonObject | None:
        if self.ask.logprobs is None:
            return None
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [token.top for token in tokens] if self.ask.logprobs else None,
            "text_offset": [token.offset for token in tokens],
        }
