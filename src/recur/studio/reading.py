"""Texts as a model has read them, so that a keystroke costs a step however long the text is.

A text that was read has a key. A request names it and says what became of it, `base`, how many of its characters are
`keep`t, and the `text` behind them: nothing before is sent, encoded or read again, but for what stands behind the last
mark. Marks, the states at some places of a text, stand where it can be cut without changing its tokens.

A model that reads from the end keeps characters of the text's end, and what is new stands before them: typing there is
what costs a step. Characters and marks are counted in the order of reading.
"""

from __future__ import annotations

import bisect
import secrets
import threading
import unicodedata
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.data.text import SPECIALS, UNK
from recur.data.text.corpus import normalised
from recur.data.text.stream import Ids
from recur.errors import OptionError
from recur.i18n import Message
from recur.models import LanguageModel
from recur.serve.http.answers import GoneError
from recur.tasks.language.data import first_input
from recur.tasks.language.predictor import Language

State = tuple[tuple[Tensor, ...], ...]
"""Of a network: for each layer, the states of its cell."""
KEPT = 32
"""Texts that are remembered."""
LONGEST = 2_000_000
"""Characters of a text."""
NEAR, BLOCK, LONG_BLOCK = 2048, 128, 4096
"""Characters between two marks: BLOCK in the last NEAR of a text, LONG_BLOCK before."""


class Mark(NamedTuple):
    """A place in a text, and what the network is there."""

    characters: int
    tokens: int
    """Read so far, the one that precedes every text among them."""
    logits: Tensor
    state: State
    unknown: Counter[str] = Counter()
    """What is not in the vocabulary, up to here."""


@dataclass(frozen=True)
class Reading:
    """A text, read."""

    text: str
    ids: Ids
    """In the order of reading, the one that precedes every text first."""
    marks: tuple[Mark, ...]
    half: str = ""
    """The letters of a word that is not finished, which was not read."""

    @property
    def end(self) -> Mark:
        return self.marks[-1]

    def before(self, tokens: int) -> Mark:
        """The last mark at which so many tokens or fewer were read; the first, if none is."""
        return self.marks[max(0, bisect.bisect_right(self.marks, tokens, key=lambda mark: mark.tokens) - 1)]


def _thinned(marks: list[Mark]) -> tuple[Mark, ...]:
    """Marks near the end, and those further back as far apart as they are meant to be."""
    kept = marks[:1]
    for mark, following in pairwise([*marks[1:], marks[-1]]):
        near = marks[-1].characters - mark.characters <= NEAR
        if near or following.characters - kept[-1].characters > LONG_BLOCK:
            kept.append(mark)
    return tuple(kept)


class Readings:
    """The texts that one model has read lately."""

    def __init__(self, language: Language) -> None:
        self.language, self.vocab = language, language.vocab
        self.network: LanguageModel = language.model
        self.backward = language.backward
        self.kind = self.vocab.tokenizer.kind
        self._kept: OrderedDict[str, Reading] = OrderedDict()
        self._sorted: list[tuple[str, int]] | None = None
        self._lock = threading.Lock()

    def read(self, text: str, base: str = "", keep: int = 0) -> tuple[str, Reading]:
        """The text made of what is kept of another one and what follows, and the key by which to go on from it."""
        before = None
        if base:
            with self._lock:
                before = self._kept.get(base)
                if before is None or keep > len(before.text):
                    raise GoneError(
                        Message("the text that this one goes on from is not remembered any more; send it again")
                    )
                self._kept.move_to_end(base)
            if keep == len(before.text) and not text:
                return base, before
        if keep + len(text) > LONGEST:
            raise OptionError(
                Message(
                    "the text is too long: {n} characters, at most {most}",
                    n=f"{keep + len(text):,}",
                    most=f"{LONGEST:,}",
                )
            )
        reading = self._go_on(before, keep, text)
        key = secrets.token_hex(8)
        with self._lock:
            self._kept[key] = reading
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return key, reading

    # Reading ----------------------------------------------------------------------------------------------

    def _go_on(self, before: Reading | None, keep: int, rest: str) -> Reading:
        text = rest if before is None else self._joined(before.text, keep, rest)
        marks = [self._first()] if before is None else list(before.marks)
        while len(marks) > 1 and not (marks[-1].characters <= keep and self._cuttable(text, marks[-1].characters)):
            marks.pop()
        begin = marks[-1]
        half = self._half_word(text, begin.characters)
        ids = [np.array([first_input(self.vocab)], np.int32) if before is None else before.ids[: begin.tokens]]
        at = begin.characters
        for end in self._blocks(text, at, len(text) - len(half)):
            piece = normalised(text[len(text) - end : len(text) - at] if self.backward else text[at:end])
            read = self.vocab.encode(piece)
            ids.append(read[::-1] if self.backward else read)
            marks.append(self._after(marks[-1], end, ids[-1], piece))
            at = end
        return Reading(text, np.concatenate(ids), _thinned(marks), half)

    def _joined(self, known: str, keep: int, rest: str) -> str:
        return rest + known[len(known) - keep :] if self.backward else known[:keep] + rest

    def _first(self) -> Mark:
        return self._after(None, 0, np.array([first_input(self.vocab)]))

    @torch.no_grad()
    def _after(self, mark: Mark | None, characters: int, ids: Ids, piece: str = "") -> Mark:
        """The mark behind some more tokens, and the piece of text that they are."""
        if mark is not None and not len(ids):
            return mark._replace(characters=characters)
        out = self.network(torch.from_numpy(np.asarray(ids, np.int64).copy())[None], mark and mark.state)
        logits, unknown = self.network.logits_of(out.outputs[:, -1])[0], mark.unknown if mark else Counter[str]()
        if (ids == UNK).any():
            unknown = unknown + self.vocab.unknown_tokens(piece)
        return Mark(characters, (mark.tokens if mark else 0) + len(ids), logits, out.state, unknown)

    # Places -----------------------------------------------------------------------------------------------

    def _blocks(self, text: str, begin: int, end: int) -> Iterator[int]:
        """Where blocks of a text end, up to its own end."""
        while begin < end:
            size = BLOCK if end - begin <= NEAR else min(LONG_BLOCK, end - begin - NEAR)
            cut = next((at for at in range(begin + size, end) if self._cuttable(text, at)), end)
            yield cut
            begin = cut

    def _cuttable(self, text: str, read: int) -> bool:
        """Whether tokens read up to a place and behind it are those of the whole text."""
        if read == 0:
            return True
        at = len(text) - read if self.backward else read
        if at <= 0:  # all of it, from its end: a letter before it may join its first word
            return self.kind == "char" or text[:1].isspace()
        if at >= len(text):
            return self.kind == "char" or text[-1].isspace()
        before, after = text[at - 1], text[at]
        if before == "\r" or not unicodedata.is_normalized("NFC", before + after):
            return False
        if self.kind == "char":
            return True
        return before == "\n" if self.kind in ("subword", "line") else before.isspace()

    def _half_word(self, text: str, begin: int) -> str:
        """The unfinished word at a text's end, if the model has words that begin so."""
        if self.backward or self.kind != "word" or not text or text[-1].isspace():
            return ""
        split = self.vocab.tokenizer.split(normalised(text[begin:]))
        if not split or not split[-1][-1].isalnum() or split[-1] in SPECIALS:
            return ""
        typed = text[-len(split[-1]) :]
        return typed if len(typed) == len(split[-1]) and self.completions(split[-1]) else ""

    def completions(self, letters: str) -> list[int]:
        """Ids of the words that begin with these letters."""
        if self._sorted is None:
            self._sorted = sorted((token, k) for k, token in enumerate(self.vocab.tokens) if token not in SPECIALS)
        options = self.vocab.tokenizer.options()
        letters = letters.lower() if options.get("lower") else letters
        found, at = [], bisect.bisect_left(self._sorted, (letters, -1))
        while at < len(self._sorted) and self._sorted[at][0].startswith(letters):
            found.append(self._sorted[at][1])
            at += 1
        return found
