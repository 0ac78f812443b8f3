"""From tokens to text as it is written: pieces that stand for themselves, and where to stop.

A piece is held back while it may still change: half a character of bytes, or what may turn out to begin a stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recur.data.text import Vocab


class Token(NamedTuple):
    """One token, and what is known of it."""

    id: int
    text: str
    offset: int
    """Where it begins, in characters of the text."""
    logprob: float | None
    """log P given all before it; None where nothing was asked for, or nothing stands before."""
    top: dict[str, float] | None
    """The likeliest in its place."""


class Pieces:
    """The text of tokens, one after the other, in constant time each."""

    def __init__(self, vocab: Vocab, before: Sequence[int] = ()) -> None:
        """`before`: the last few tokens that were read, which decide whether a space comes first."""
        self._vocab, self._plain = vocab, vocab.tokenizer.kind == "char"
        self._ids = [*before[-4:]]
        self._known, self._read = 0, len(self._ids)

    def add(self, token: int) -> str:
        """What this token adds; nothing while its character is not whole."""
        if self._plain:
            return self._vocab.tokens[token]
        self._ids.append(token)
        told = self._vocab.decode(self._ids[self._known : self._read])
        whole = self._vocab.decode(self._ids[self._known :])
        if whole.endswith("\ufffd") and len(self._ids) - self._read < 8:
            return ""
        del self._ids[: self._read - self._known]
        self._known, self._read = 0, len(self._ids)
        return whole[len(told) :]


class Writing:
    """A text that grows token by token, until one of its stops comes up."""

    def __init__(self, pieces: Pieces, stops: Sequence[str], offset: int = 0) -> None:
        """`offset`: how many characters stand before it."""
        self._pieces, self._stops, self._offset = pieces, [stop for stop in stops if stop], offset
        self._longest = max(map(len, self._stops), default=0)
        self._text, self._shown = "", 0
        self._held: list[Token] = []
        self.stopped = False

    def add(self, token: Token) -> tuple[str, list[Token]]:
        """What can be shown of the text now, and the tokens that begin in it."""
        begin = len(self._text)
        self._held.append(token._replace(offset=self._offset + begin))
        piece = self._pieces.add(token.id)
        if not self._stops:
            return self._release_plain(piece)
        self._text += piece
        found = [at for stop in self._stops if (at := self._text.find(stop, max(0, begin - self._longest + 1))) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found))
        return self._release(len(self._text) - self._may_begin())

    def end(self) -> tuple[str, list[Token]]:
        """What was held back, once no more comes."""
        return ("", []) if self.stopped else self._release(len(self._text))

    def _release_plain(self, piece: str) -> tuple[str, list[Token]]:
        self._offset += len(piece)
        held, self._held = self._held, []
        return piece, held

    def _may_begin(self) -> int:
        """How many characters at the end may begin a stop."""
        most = min(self._longest - 1, len(self._text) - self._shown)
        for k in range(most, 0, -1):
            tail = self._text[-k:]
            if any(len(stop) > k and stop.startswith(tail) for stop in self._stops):
                return k
        return 0

    def _release(self, end: int) -> tuple[str, list[Token]]:
        piece = self._text[self._shown : end]
        self._shown = max(self._shown, end)
        released = [token for token in self._held if token.offset - self._offset < end]
        self._held = self._held[len(released) :]
        return piece, released
