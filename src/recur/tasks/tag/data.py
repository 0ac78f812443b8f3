"""Spans in tags, and how many of them were found: precision, recall and F1 as conlleval and seqeval have them.

    BIO     B-NP I-NP O         a span begins with B-, goes on with I-
    BIOES   B-NP I-NP E-NP S-NP and ends with E-, or is one word, S-

Tags that break these rules are read as conlleval reads them: a span begins where its type changes or nothing stood
before, whatever its letter is. So IOB1, in which a span begins with I- unless it touches another of its type, is read
right too.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.baselines.transducers import FEATURES, FeatureCRF, feature_vocab
from recur.data.batching import padded
from recur.data.text import PAD, SPECIALS, UNK, Sentence, Vocab, fit_lines
from recur.data.text.stream import Ids
from recur.data.text.tokenizers import casing_of
from recur.models.tagger import UNSEEN_TAG, WordBatch, WordFormBatch
from recur.nn.crf import Transitions
from recur.runs import Vocabs
from recur.tasks.common.classification import class_names, class_numbers, label_vocab, names_vocab
from recur.tasks.tag.blend import LazyFeatureCRF
from recur.tasks.tag.options import TagOptions
from recur.utils.types import Metrics

_TAG = re.compile(r"([BIES])(?:-(.+))?", re.DOTALL)

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class Span(NamedTuple):
    type: str
    start: int
    end: int
    """Its last word."""


def are_spans(tags: Iterable[str]) -> bool:
    """Return True if a set of tags marks spans: beside O, only letters with types, of which some begin a span."""
    found = {tag: _TAG.fullmatch(tag) for tag in set(tags) - {"O"}}
    letters = {match[1] for match in found.values() if match}
    typed = {match[2] is not None for match in found.values() if match}
    return bool(found) and all(found.values()) and len(typed) == 1 and bool(letters & {"B", "I"})


def cut(tag: str) -> tuple[str, str]:
    """Return the letter and type of a tag: `B-NP` → B, NP; `B` → B, _. Other tags are outside of any span."""
    match = _TAG.fullmatch(tag)
    return (match[1], match[2] or "_") if match else ("O", "")


def spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans of one sentence."""
    found: list[Span] = []
    letter, kind, start = "O", "", 0
    for t, tag in enumerate((*tags, "O")):
        before, type_before = letter, kind
        letter, kind = cut(tag)
        begins = letter in "BS" or before in "OES" or kind != type_before
        if before != "O" and (letter == "O" or begins):
            found.append(Span(type_before, start, t - 1))
        if begins:
            start = t
    return found


class SpanCounts(NamedTuple):
    """Number of true, predicted and correct spans by type."""

    there: Counter[str]
    predicted: Counter[str]
    right: Counter[str]


def compare(targets: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]]) -> SpanCounts:
    """Count the spans of sentences."""
    found = SpanCounts(Counter(), Counter(), Counter())
    for a, b in zip(targets, predictions, strict=True):
        there, predicted = spans(a), spans(b)
        found.there.update(span.type for span in there)
        found.predicted.update(span.type for span in predicted)
        found.right.update(span.type for span in set(there) & set(predicted))
    return found


def span_scores(found: SpanCounts) -> Metrics:
    """Return precision, recall and F1 of all types together."""
    return _scores(found.right.total(), found.predicted.total(), found.there.total())


def by_type(found: SpanCounts) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and the number of spans of each type."""
    types = sorted(found.there.keys() | found.predicted.keys())
    return {t: {**_scores(found.right[t], found.predicted[t], found.there[t]), "spans": found.there[t]} for t in types}


def _scores(right: int, predicted: int, there: int) -> Metrics:
    """0 where there is nothing to divide by."""
    return {
        "f1": 2 * right / max(predicted + there, 1),
        "precision": right / max(predicted, 1),
        "recall": right / max(there, 1),
    }


# Which tag can follow which -------------------------------------------------------------------------------------


class TransitionRules(NamedTuple):
    """Tags that may come first (K,), after one another (K, K), and last (K,)."""

    start: Flags
    between: Flags
    end: Flags


def legal_moves(tags: Sequence[str]) -> TransitionRules:
    """Return the transitions that BIO allows, or BIOES if some tag ends a span."""
    cuts = [cut(tag) for tag in tags]
    bioes = any(letter in "ES" for letter, _ in cuts)
    opened = [letter in "BI" for letter, _ in cuts]  # a span that can go on, and in BIOES must

    def follows(i: int, j: int) -> bool:
        goes_on = cuts[j][0] in ("IE" if bioes else "I")
        if bioes and opened[i]:
            return goes_on and cuts[i][1] == cuts[j][1]
        return not goes_on or (opened[i] and cuts[i][1] == cuts[j][1])

    K = len(tags)
    start = np.array([letter not in ("IE" if bioes else "I") for letter, _ in cuts])
    between = np.array([[follows(i, j) for j in range(K)] for i in range(K)]).reshape(K, K)
    end = np.array([not (bioes and inside) for inside in opened])
    return TransitionRules(start, between, end)


LONGEST = 32
"""Characters of a word at most that are read: of a longer one its beginning and its end."""

MANY = 1_000_000
"""Words at most whose characters are kept: a stream of them has no end."""

EDGE = ""
"""In the place of a tag, where a sentence begins or ends."""


class TaggedExample(NamedTuple):
    """Encoded sentence."""

    ids: list[int]
    ends: list[int]
    """The last token of each word."""
    tags: list[int]
    words: tuple[str, ...]


class TagBatch(NamedTuple):
    words: WordBatch
    tags: Tensor
    """(B, W), UNSEEN behind the last word."""


@dataclass(frozen=True)
class TagData:
    vocabs: Vocabs
    train: list[TaggedExample]
    valid: list[TaggedExample]
    train_sentences: list[Sentence]
    valid_sentences: list[Sentence]
    linear: LazyFeatureCRF
    """The linear CRF of the training set, with which the network is blended and compared."""


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
    if options.blended:
        vocabs["features"] = feature_vocab(sentences)
    if options.crf and options.constrained and (broken := _broken_rules(sentences, vocabs["labels"])):
        vocabs["moves"] = names_vocab(broken)
    return vocabs


def _broken_rules(sentences: Iterable[Sentence], labels: Vocab) -> Counter[str]:
    """Moves `tag TAB tag` that were learned from, although spans are not written so."""
    allowed, numbers = _legal(labels), class_numbers(labels)
    if allowed is None:
        return Counter()
    moves = Counter(pair for s in sentences for pair in itertools.pairwise((EDGE, *s.tags, EDGE)))
    found: Counter[str] = Counter()
    for (a, b), n in sorted(moves.items()):
        if not _flag(allowed, numbers, a, b):
            found[f"{a}\t{b}"] = n
    return found


def allowed_moves(vocabs: Vocabs) -> Transitions | None:
    """Moves by the rules of spans, and those that training had all the same; None where tags mark no spans."""
    allowed, numbers = _legal(vocabs["labels"]), class_numbers(vocabs["labels"])
    if allowed is None:
        return None
    for move in vocabs["moves"].tokens[len(SPECIALS) :] if "moves" in vocabs else ():
        a, _, b = move.partition("\t")
        if (a == EDGE or a in numbers) and (b == EDGE or b in numbers) and (a or b):
            _place(allowed, numbers, a, b)[...] = True
    return allowed


def _legal(labels: Vocab) -> Transitions | None:
    tags = class_names(labels)
    return Transitions(*map(torch.from_numpy, legal_moves(tags))) if are_spans(tags) else None


def _place(moves: Transitions, numbers: dict[str, int], a: str, b: str) -> Tensor:
    """Return the score of the transition from a to b."""
    if a == EDGE:
        return moves.start[numbers[b]]
    return moves.end[numbers[a]] if b == EDGE else moves.between[numbers[a], numbers[b]]


def _flag(moves: Transitions, numbers: dict[str, int], a: str, b: str) -> bool:
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


def encode(sentences: Iterable[Sentence], vocabs: Vocabs) -> list[TaggedExample]:
    """Encode examples; examples without tags get UNSEEN tags."""
    classes = class_numbers(vocabs["labels"])
    found = []
    for words, tags, *_ in sentences:
        ids, ends = spell(words, vocabs["vocab"])
        numbers = [classes.get(tag, UNSEEN_TAG) for tag in tags] or [UNSEEN_TAG] * len(words)
        found.append(TaggedExample(ids, ends, numbers, words))
    return found


def unseen_tags(sentences: Iterable[Sentence], vocabs: Vocabs) -> Counter[str]:
    """Tags that training did not have, and how often they stand here."""
    classes = class_numbers(vocabs["labels"])
    return Counter(tag for sentence in sentences for tag in sentence.tags if tag not in classes)


class Collate:
    """Sentences as a batch; words are looked at where a vocabulary of characters is given."""

    def __init__(self, vocabs: Vocabs, linear: FeatureCRF | None = None) -> None:
        """Create the function; `linear` adds the features of words that it reads."""
        self.characters, self.linear = vocabs.get("characters"), linear
        # of the words that were met
        self._numbers: dict[str, int] = {}
        self._spelled: list[Ids] = []
        self._casing: list[int] = []

    def __call__(self, sentences: Sequence[TaggedExample]) -> TagBatch:
        ids, lengths = padded([np.array(s.ids) for s in sentences])
        ends, counts = padded([np.array(s.ends) for s in sentences], fill=0)
        tags, _ = padded([np.array(s.tags) for s in sentences], fill=UNSEEN_TAG)
        forms = None if self.characters is None else self._forms(sentences, ids.shape[1], self.characters)
        features = None if self.linear is None else self._features(sentences, self.linear)
        return TagBatch(WordBatch(ids, lengths, ends, counts, forms, features), tags)

    @staticmethod
    def _features(sentences: Sequence[TaggedExample], linear: FeatureCRF) -> Tensor:
        table = np.zeros((len(sentences), max(len(s.words) for s in sentences), FEATURES), np.int64)
        for row, s in enumerate(sentences):
            table[row, : len(s.words)] = linear.encode(s.words)
        return torch.from_numpy(table)

    def _forms(self, sentences: Sequence[TaggedExample], T: int, characters: Vocab) -> WordFormBatch:
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
        return WordFormBatch(spelled, lengths, casing, torch.from_numpy(table))

    def _number(self, word: str, characters: Vocab) -> int:
        if word not in self._numbers:
            half = LONGEST // 2
            short = word if len(word) <= LONGEST else word[:half] + word[-half:]
            spelled = characters.encode(short)
            self._numbers[word] = len(self._spelled)
            self._spelled.append(spelled if len(spelled) else np.array([PAD]))
            self._casing.append(casing_of(word))
        return self._numbers[word]
