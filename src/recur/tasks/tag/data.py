"""From sentences to batches: words spelled in tokens, beside them what they look like, and the numbers of their tags.

Words are spelled in tokens: one each, or as many as they have characters or pieces, a space between two words. A tag
that training did not have is UNSEEN: nothing that is predicted equals it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.data.batching import padded
from recur.data.text import PAD, SPECIALS, UNK, Sentence, Vocab, fit_lines
from recur.data.text.stream import Ids
from recur.data.text.tokenizers import casing_of
from recur.models.tagger import UNSEEN, Forms, Words
from recur.nn import Moves
from recur.runs import Vocabs
from recur.tasks.classes import classes_of, label_vocab, names_vocab, numbers_of
from recur.tasks.tag.options import TagOptions
from recur.tasks.tag.spans import are_spans, legal_moves

LONGEST = 32
"""Characters of a word at most that are read: of a longer one its beginning and its end."""

MANY = 1_000_000
"""Words at most whose characters are kept: a stream of them has no end."""

EDGE = ""
"""In the place of a tag, where a sentence begins or ends."""


class Tagged(NamedTuple):
    """A sentence in numbers."""

    ids: list[int]
    ends: list[int]
    """The last token of each word."""
    tags: list[int]
    words: tuple[str, ...]


class TagBatch(NamedTuple):
    words: Words
    tags: Tensor
    """(B, W), UNSEEN behind the last word."""


@dataclass(frozen=True)
class TagData:
    vocabs: Vocabs
    train: list[Tagged]
    valid: list[Tagged]
    train_sentences: list[Sentence]
    valid_sentences: list[Sentence]


# Vocabularies ---------------------------------------------------------------------------------------------------


def fit_vocabs(sentences: Sequence[Sentence], options: TagOptions) -> Vocabs:
    """Of tokens, of tags, of characters where words are looked at, and of moves between tags that break the rules."""
    lines = (" ".join(sentence.words) for sentence in sentences)
    vocabs: Vocabs = {
        "vocab": fit_lines(lines, options.token, **options.vocab_options()),
        "labels": label_vocab(tag for sentence in sentences for tag in sentence.tags),
    }
    if options.reads_forms:
        vocabs["characters"] = fit_lines(word for sentence in sentences for word in sentence.words)
    if options.crf and options.constrained and (broken := _broken_rules(sentences, vocabs["labels"])):
        vocabs["moves"] = names_vocab(broken)
    return vocabs


def _broken_rules(sentences: Iterable[Sentence], labels: Vocab) -> Counter[str]:
    """Moves `tag TAB tag` that were learned from, although spans are not written so."""
    allowed, numbers = _legal(labels), numbers_of(labels)
    if allowed is None:
        return Counter()
    moves = Counter(pair for s in sentences for pair in itertools.pairwise((EDGE, *s.tags, EDGE)))
    found: Counter[str] = Counter()
    for (a, b), n in sorted(moves.items()):
        if not _flag(allowed, numbers, a, b):
            found[f"{a}\t{b}"] = n
    return found


def allowed_moves(vocabs: Vocabs) -> Moves | None:
    """Moves by the rules of spans, and those that training had all the same; None where tags mark no spans."""
    allowed, numbers = _legal(vocabs["labels"]), numbers_of(vocabs["labels"])
    if allowed is None:
        return None
    for move in vocabs["moves"].tokens[len(SPECIALS) :] if "moves" in vocabs else ():
        a, _, b = move.partition("\t")
        if (a == EDGE or a in numbers) and (b == EDGE or b in numbers) and (a or b):
            _place(allowed, numbers, a, b)[...] = True
    return allowed


def _legal(labels: Vocab) -> Moves | None:
    tags = classes_of(labels)
    return Moves(*map(torch.from_numpy, legal_moves(tags))) if are_spans(tags) else None


def _place(moves: Moves, numbers: dict[str, int], a: str, b: str) -> Tensor:
    """Of the move from a to b."""
    if a == EDGE:
        return moves.start[numbers[b]]
    return moves.end[numbers[a]] if b == EDGE else moves.between[numbers[a], numbers[b]]


def _flag(moves: Moves, numbers: dict[str, int], a: str, b: str) -> bool:
    return bool(_place(moves, numbers, a, b))


# Encoding -------------------------------------------------------------------------------------------------------


def spell(words: Sequence[str], vocab: Vocab) -> tuple[list[int], list[int]]:
    """The tokens of a sentence, and the last one of each word."""
    ids: list[int] = []
    ends: list[int] = []
    for word in words:
        ids += vocab.encode(f" {word}" if ids else word).tolist() or [UNK]
        ends.append(len(ids) - 1)
    return ids, ends


def encode(sentences: Iterable[Sentence], vocabs: Vocabs) -> list[Tagged]:
    """Those without tags have UNSEEN ones."""
    classes = numbers_of(vocabs["labels"])
    found = []
    for words, tags, _ in sentences:
        ids, ends = spell(words, vocabs["vocab"])
        numbers = [classes.get(tag, UNSEEN) for tag in tags] or [UNSEEN] * len(words)
        found.append(Tagged(ids, ends, numbers, words))
    return found


def unseen_tags(sentences: Iterable[Sentence], vocabs: Vocabs) -> Counter[str]:
    """Tags that training did not have, and how often they stand here."""
    classes = numbers_of(vocabs["labels"])
    return Counter(tag for sentence in sentences for tag in sentence.tags if tag not in classes)


class Collate:
    """Sentences as a batch; words are looked at where a vocabulary of characters is given."""

    def __init__(self, vocabs: Vocabs) -> None:
        self.characters = vocabs.get("characters")
        # of the words that were met
        self._numbers: dict[str, int] = {}
        self._spelled: list[Ids] = []
        self._casing: list[int] = []

    def __call__(self, sentences: Sequence[Tagged]) -> TagBatch:
        ids, lengths = padded([np.array(s.ids) for s in sentences])
        ends, counts = padded([np.array(s.ends) for s in sentences], fill=0)
        tags, _ = padded([np.array(s.tags) for s in sentences], fill=UNSEEN)
        forms = None if self.characters is None else self._forms(sentences, ids.shape[1], self.characters)
        return TagBatch(Words(ids, lengths, ends, counts, forms), tags)

    def _forms(self, sentences: Sequence[Tagged], T: int, characters: Vocab) -> Forms:
        """Each word once, the longest first: those that are still read stand together at every character."""
        if len(self._numbers) > MANY:
            self._numbers, self._spelled, self._casing = {}, [], []
        numbers = {word: self._number(word, characters) for s in sentences for word in s.words}
        # Words of one length by their letters, not by when they were met: a resumed run adds in this order too.
        ordered = sorted(numbers, key=lambda word: (-len(self._spelled[numbers[word]]), word))
        places = {word: k for k, word in enumerate(ordered)}
        which = np.array([places[word] for s in sentences for word in s.words])
        distinct = [numbers[word] for word in ordered]
        table, at = np.zeros((len(sentences), T), np.int64), 0
        for row, s in enumerate(sentences):
            tokens = np.diff(s.ends, prepend=-1)
            table[row, : len(s.ids)] = np.repeat(which[at : at + len(tokens)], tokens)
            at += len(tokens)
        spelled, lengths = padded([self._spelled[k] for k in distinct])
        casing = torch.tensor([self._casing[k] for k in distinct])
        return Forms(spelled, lengths, casing, torch.from_numpy(table))

    def _number(self, word: str, characters: Vocab) -> int:
        if word not in self._numbers:
            half = LONGEST // 2
            short = word if len(word) <= LONGEST else word[:half] + word[-half:]
            spelled = characters.encode(short)
            self._numbers[word] = len(self._spelled)
            self._spelled.append(spelled if len(spelled) else np.array([PAD]))
            self._casing.append(casing_of(word))
        return self._numbers[word]
