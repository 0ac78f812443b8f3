"""Texts with their classes, as tokens for a network and as they stand for plainer models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from recur.data.text import LabelledText, Vocab
from recur.data.text.stream import Ids
from recur.errors import TextError
from recur.i18n import Message
from recur.runs import Vocabs
from recur.tasks.classes import class_of, class_weights, classes_of, numbers_of, numbers_with_unseen
from recur.tasks.classify.tfidf import Fitted, best_linear, gram_vocab
from recur.tasks.examples import padded
from recur.tasks.tokens import choose_token


class Example(NamedTuple):
    ids: Ids
    label: int
    text: str

    @property
    def size(self) -> int:
        return len(self.ids)


class TextBatch(NamedTuple):
    ids: Tensor
    lengths: Tensor | None
    """(B,), on the CPU, where scans want them; None where all are as long."""
    classes: Tensor

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Self:
        ids, lengths = padded([e.ids for e in examples])
        ends = None if bool((lengths == ids.shape[1]).all()) else lengths
        return cls(ids, ends, torch.tensor([e.label for e in examples]))


@dataclass
class Linear:
    """The plain model that a network is mixed with, fitted when it is first asked for."""

    vocabs: Vocabs
    train: Sequence[Example]
    valid: Sequence[Example]
    balanced: bool = False

    @functools.cached_property
    def fitted(self) -> Fitted:
        labels = self.vocabs["labels"]
        train, valid = ([(e.text, e.label) for e in part] for part in (self.train, self.valid))
        grams = self.vocabs["ngrams"] if "ngrams" in self.vocabs else ngram_vocab([text for text, _ in train])
        weights = class_weights(labels) if self.balanced else None
        return best_linear(train, valid, grams, len(classes_of(labels)), weights)


@dataclass(frozen=True)
class TextData:
    vocabs: Vocabs
    train: list[Example]
    valid: list[Example]
    linear: Linear
    """Of all of these, where a measurement takes fewer."""
    note: str = ""
    """What is worth saying of the files."""


def ngram_vocab(texts: Sequence[str]) -> Vocab:
    """The n-grams of texts: of words where they are sentences, else of characters, whatever the network reads."""
    return gram_vocab(texts, choose_token(texts))


def encode_text(vocab: Vocab, text: str, where: str) -> Ids:
    ids = vocab.encode(text).astype(np.int64)
    if not len(ids):
        raise TextError(Message("{where}: the text has no token", where=where))
    return ids


def encode(examples: Sequence[LabelledText], vocabs: Vocabs, learned: bool = False) -> list[Example]:
    """Those to be measured may have labels that training did not have, with numbers behind its own."""
    classes = numbers_of(vocabs["labels"])
    if not learned:
        classes = numbers_with_unseen((example.label for example in examples), vocabs["labels"])
    return [
        Example(encode_text(vocabs["vocab"], text, where), class_of(label, classes, where), text)
        for text, label, where in examples
    ]
