"""Model in memory for the views, and a cache of the texts that it has read, so that a keystroke costs one step.

Each text that was read has a key. A request gives the key (`base`), how many characters of that text to `keep`, and the
`text` that follows: the part before is not sent, encoded or read again, except what follows the last checkpoint.
Checkpoints, the states at some positions, are where a text can be split without changing its tokens.

A model that reads backward keeps characters at the end of the text, and new text is before them. Characters and
checkpoints are counted in reading order.
"""

from __future__ import annotations

import bisect
import copy
import itertools
import secrets
import threading
import unicodedata
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from recur.data.text import SPECIALS, UNK
from recur.data.text.corpus import normalised
from recur.data.text.stream import Ids
from recur.decoding import SamplingOptions
from recur.diagnostics import Subject
from recur.diagnostics.subject import FEWEST
from recur.errors import OptionError, RecurError, RunError, TextError
from recur.i18n import Message
from recur.models import LanguageModel
from recur.nn import Recurrent
from recur.runs import Run
from recur.serve.http import GoneError, RequestModel, validate
from recur.tasks import predictor_of
from recur.tasks.common.predictor import Predictor
from recur.tasks.language.data import first_input, in_reading_order, valid_text
from recur.tasks.language.predictor import Language
from recur.utils.types import JsonObject

MAX_TEXT_CHARS = 4000
"""Characters of a text in a request."""


class TextRequest(RequestModel):
    """Text of a request."""

    text: str = ""

    @field_validator("text")
    @classmethod
    def _check_length(cls, text: str) -> str:
        if len(text) > MAX_TEXT_CHARS:
            raise OptionError(
                Message(
                    "the text is too long: {n} characters, at most {most}",
                    n=f"{len(text):,}",
                    most=f"{MAX_TEXT_CHARS:,}",
                )
            )
        return text


class CachedTextRequest(TextRequest):
    """Text of a request, or the part of it that follows the first `keep` characters of the cached text `base`."""

    base: str = ""
    keep: Annotated[int, Field(ge=0, le=10**9)] = 0


class SamplingFields(RequestModel):
    """Temperature, top-k and top-p of a request."""

    temperature: Annotated[float, Field(ge=0.05, le=5)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=10**6)] = 0
    top_p: Annotated[float, Field(ge=0.01, le=1)] = 1.0


def get_text(request: JsonObject) -> str:
    return validate(TextRequest, request).text


def get_sampling(request: JsonObject) -> SamplingOptions:
    """Return temperature, top-k and top-p of a request."""
    return SamplingOptions(**validate(SamplingFields, request).model_dump())


NetworkState = tuple[tuple[Tensor, ...], ...]
"""State of a network: for each layer, the states of its cell."""
KEPT = 32
"""Texts in the cache."""
LONGEST = 2_000_000
"""Characters of a text."""
NEAR, BLOCK, LONG_BLOCK = 2048, 128, 4096
"""Characters between two checkpoints: BLOCK in the last NEAR characters of a text, LONG_BLOCK before."""


class StateCheckpoint(NamedTuple):
    """Position in a text with the state of the network there."""

    characters: int
    tokens: int
    """Number of tokens read, including the start token."""
    logits: Tensor
    state: NetworkState
    unknown: Counter[str] = Counter()
    """Unknown tokens up to here."""


@dataclass(frozen=True)
class EncodedText:
    """Text with its token ids and checkpoints."""

    text: str
    ids: Ids
    """Token ids in reading order, with the start token first."""
    marks: tuple[StateCheckpoint, ...]
    half: str = ""
    """Letters of an unfinished word, which was not read."""

    @property
    def end(self) -> StateCheckpoint:
        return self.marks[-1]

    def before(self, tokens: int) -> StateCheckpoint:
        """Return the last checkpoint with at most so many tokens; the first one if there is none."""
        return self.marks[max(0, bisect.bisect_right(self.marks, tokens, key=lambda mark: mark.tokens) - 1)]


def _thinned(marks: list[StateCheckpoint]) -> tuple[StateCheckpoint, ...]:
    """Return the checkpoints near the end, and earlier ones LONG_BLOCK apart."""
    kept = marks[:1]
    for mark, following in pairwise([*marks[1:], marks[-1]]):
        near = marks[-1].characters - mark.characters <= NEAR
        if near or following.characters - kept[-1].characters > LONG_BLOCK:
            kept.append(mark)
    return tuple(kept)


class PrefixCache:
    """Cache of the texts that one model has read recently."""

    def __init__(self, language: Language) -> None:
        self.language, self.vocab = language, language.vocab
        self.network: LanguageModel = language.model
        self.backward = language.backward
        self.kind = self.vocab.tokenizer.kind
        self._kept: OrderedDict[str, EncodedText] = OrderedDict()
        self._sorted: list[tuple[str, int]] | None = None
        self._lock = threading.Lock()

    def read(self, text: str, base: str = "", keep: int = 0) -> tuple[str, EncodedText]:
        """Read a text that continues `keep` characters of the text `base`; return its key and the encoded text."""
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

    def _go_on(self, before: EncodedText | None, keep: int, rest: str) -> EncodedText:
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
        return EncodedText(text, np.concatenate(ids), _thinned(marks), half)

    def _joined(self, known: str, keep: int, rest: str) -> str:
        return rest + known[len(known) - keep :] if self.backward else known[:keep] + rest

    def _first(self) -> StateCheckpoint:
        return self._after(None, 0, np.array([first_input(self.vocab)]))

    @torch.no_grad()
    def _after(self, mark: StateCheckpoint | None, characters: int, ids: Ids, piece: str = "") -> StateCheckpoint:
        """Return the checkpoint after reading token ids, whose text is `piece`."""
        if mark is not None and not len(ids):
            return mark._replace(characters=characters)
        out = self.network(torch.from_numpy(np.asarray(ids, np.int64).copy())[None], mark and mark.state)
        logits, unknown = self.network.logits_of(out.outputs[:, -1])[0], mark.unknown if mark else Counter[str]()
        if (ids == UNK).any():
            unknown = unknown + self.vocab.unknown_tokens(piece)
        return StateCheckpoint(characters, (mark.tokens if mark else 0) + len(ids), logits, out.state, unknown)

    # Positions---------------------------------------------------------------------------------------------

    def _blocks(self, text: str, begin: int, end: int) -> Iterator[int]:
        """Yield the positions where blocks of a text end."""
        while begin < end:
            size = BLOCK if end - begin <= NEAR else min(LONG_BLOCK, end - begin - NEAR)
            cut = next((at for at in range(begin + size, end) if self._cuttable(text, at)), end)
            yield cut
            begin = cut

    def _cuttable(self, text: str, read: int) -> bool:
        """Return True if splitting the text here does not change its tokens."""
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
        """Return the unfinished word at the end of a text, if the vocabulary has words with this prefix."""
        if self.backward or self.kind != "word" or not text or text[-1].isspace():
            return ""
        split = self.vocab.tokenizer.split(normalised(text[begin:]))
        if not split or not split[-1][-1].isalnum() or split[-1] in SPECIALS:
            return ""
        typed = text[-len(split[-1]) :]
        return typed if len(typed) == len(split[-1]) and self.completions(split[-1]) else ""

    def completions(self, letters: str) -> list[int]:
        """Return the ids of the words with this prefix."""
        if self._sorted is None:
            self._sorted = sorted((token, k) for k, token in enumerate(self.vocab.tokens) if token not in SPECIALS)
        options = self.vocab.tokenizer.options()
        letters = letters.lower() if options.get("lower") else letters
        found, at = [], bisect.bisect_left(self._sorted, (letters, -1))
        while at < len(self._sorted) and self._sorted[at][0].startswith(letters):
            found.append(self._sorted[at][1])
            at += 1
        return found


CHARACTERS, WORDS = 240, 60
"""Characters and words of an example."""
Result = TypeVar("Result")


class LoadedModel:
    """Model of one run, and a copy for probes: hooks on the model itself would disturb requests that run meanwhile."""

    def __init__(self, run: Run) -> None:
        self.predictor: Predictor[Any] = predictor_of(
            [run], "cpu"
        )  # a keystroke is one step of batch size 1, for which a GPU is slower
        self._probed: Language | None = None
        self._kept: dict[str, Any] = {}

    @cached_property
    def readings(self) -> PrefixCache:
        self.language.model.requires_grad_(False)  # it is used, and its copy for probes asks for gradients
        return PrefixCache(self.language)

    @property
    def language(self) -> Language:
        """Language model of the run; raise RunError for other tasks."""
        if isinstance(self.predictor, Language):
            return self.predictor
        name, task = self.predictor.run.path.name, self.predictor.task.name
        raise RunError(
            Message(
                "{name} is a run of the task {task}; this view reads runs of the task language", name=name, task=task
            )
        )

    def subject(self, text: str, fewest: int = FEWEST) -> Subject:
        """Return the model with a text of at least `fewest` tokens, for probes."""
        language = self.language
        whole = language.vocab.encode(normalised(text))
        ids = in_reading_order(language.vocab.without_unseen(whole), language.options)
        if len(ids) < fewest:
            raise TextError(
                Message(
                    "the text is too short: {n} tokens, and this view needs at least {fewest}",
                    n=len(ids),
                    fewest=fewest,
                )
            )
        return self.subject_of(torch.from_numpy(np.asarray(ids, np.int64).copy()))

    def subject_of(self, ids: Tensor) -> Subject:
        """Return the model with token ids in reading order, for probes."""
        if self._probed is None:
            self._probed = copy.copy(self.language)  # and not from its files, which may be others by now
            self._probed.models = [copy.deepcopy(self.language.model).requires_grad_(True)]
        network = self._probed.model
        if not isinstance(network.recurrent, Recurrent):
            raise RunError(Message("--recurrence output has no hidden state that goes from step to step"))
        return Subject(network, network.recurrent, ids, self._probed)

    def example(self) -> str:
        """Return the beginning of the run's validation text; if its files are gone, a generated text."""
        return self.kept("example", self._validation_text) or self.kept("generated", self._generated)

    def kept(self, name: str, make: Callable[[], Result]) -> Result:
        """Return a cached value; compute it on first use."""
        if name not in self._kept:
            self._kept[name] = make()
        made: Result = self._kept[name]
        return made

    def _generated(self) -> str:
        tokens = CHARACTERS if self.language.vocab.tokenizer.kind == "char" else WORDS
        return without_specials(self.language.generate("", tokens, temperature=0.7, seed=0)[0]).strip() + "\n"

    def _validation_text(self) -> str:
        language = copy.copy(self.language)
        language.task = copy.copy(language.task)  # find_texts changes the task
        try:
            language.find_texts("valid" if language.options.valid else "texts")
            whole = "".join(itertools.islice(valid_text(language.options).pieces(), 1))
        except (RecurError, OSError):
            return ""
        lines = whole[: 2 * CHARACTERS].strip().split("\n")
        text = ""
        for line in lines:
            if text and len(text) + len(line) > CHARACTERS:
                break
            text += line + "\n"
        return text[:CHARACTERS].strip() + "\n" if text.strip() else ""

    def read(self, request: JsonObject) -> tuple[str, EncodedText]:
        """Read the text of a request, or the part that follows a cached text."""
        given = validate(CachedTextRequest, request)
        return self.readings.read(given.text, given.base, given.keep if given.base else 0)


def display_text(token: str) -> str:
    """Return a token as text: a newline for <eos>, "" for the other special tokens."""
    return "\n" if token == "<eos>" else "" if token in SPECIALS else token


def shown_text(token: str) -> str:
    """Return a token as text to show; special tokens such as <unk> by their names."""
    return display_text(token) or token


def without_specials(text: str) -> str:
    """Return a text without special tokens."""
    for special in SPECIALS:
        text = text.replace(special, "")
    return text
