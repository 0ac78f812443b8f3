"""A tag for every word, n → n: CoNLL columns.

Words are spelled in tokens: one each, or as many as they have characters or pieces, a space between two words. A word's
tag is read at its last token, so that a network of one direction tags while it reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from recur.models import OutputTagger, Tagger
from recur.run import Vocabs
from recur.tasks.classes import class_of, class_weights, classes_of, label_vocab, numbers_of, validation
from recur.tasks.contract import Baseline, Moment, Task, TrainingStep, Validation
from recur.tasks.examples import Shuffled, in_order, padded, split
from recur.tasks.places import Places
from recur.tasks.tag.options import TagOptions
from recur.tasks.tokens import with_time_scale
from recur.text import UNK, Sentence, Vocab, fit_lines, read_tagged

ROWS = 128
"""Sentences measured as one batch."""


class Tagged(NamedTuple):
    ids: list[int]
    ends: list[int]
    """The last token of each word."""
    tags: list[int]


class TagBatch(NamedTuple):
    ids: Tensor
    lengths: Tensor
    at: Tensor
    """Where among B · T steps tags are read."""
    tags: Tensor

    @classmethod
    def of(cls, sentences: Sequence[Tagged]) -> Self:
        ids, lengths = padded([np.array(s.ids) for s in sentences])
        at = [row * ids.shape[1] + end for row, s in enumerate(sentences) for end in s.ends]
        return cls(ids, lengths, torch.tensor(at), torch.tensor([tag for s in sentences for tag in s.tags]))


@dataclass(frozen=True)
class TagData:
    vocabs: Vocabs
    train: list[Tagged]
    valid: list[Tagged]
    train_sentences: list[Sentence]
    valid_sentences: list[Sentence]


class TagTask(Task[TagOptions, TagData, Tagger | OutputTagger, TagBatch]):
    name = "tag"
    curve = "valid_error"
    unit = "words"
    places = Places()

    @classmethod
    def settle(cls, options: TagOptions) -> TagOptions:
        if options.recurrence == "output":
            options = options.with_defaults(direction="forward")
        return super().settle(with_time_scale(options, lambda: [len(s.ids) for s in cls(options).read().train]))

    def read(self, vocabs: Vocabs | None = None) -> TagData:
        train, valid, _ = split(self.options, read_tagged)
        if vocabs is None:
            lines = (" ".join(sentence.words) for sentence in train)
            words = fit_lines(lines, self.options.token, **self.options.vocab_options())
            vocabs = {"vocab": words, "labels": label_vocab(tag for sentence in train for tag in sentence.tags)}
        return TagData(vocabs, encode(train, vocabs), encode(valid, vocabs), train, valid)

    def describe(self, data: TagData) -> str:
        words, labels = len(data.vocabs["vocab"]), len(classes_of(data.vocabs["labels"]))
        tags = sum(len(sentence.tags) for sentence in data.train)
        return f"{len(data.train):,} sentences of {tags:,} words to learn from, {words:,} tokens, {labels} tags"

    def baselines(self, data: TagData) -> list[Baseline]:
        predictions = usual_tags(data.train_sentences, data.valid_sentences)
        targets = [tag for sentence in data.valid_sentences for tag in sentence.tags]
        wrong = sum(a != b for a, b in zip(predictions, targets, strict=True))
        return [Baseline("each word's most frequent tag", wrong / len(targets))]

    def new_model(self, vocabs: Vocabs) -> Tagger | OutputTagger:
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.options.class_weights == "balanced" else None
        kind = OutputTagger if self.options.recurrence == "output" else Tagger
        return kind(len(vocabs["vocab"]), len(classes_of(labels)), self.options, weights)

    def batches(self, data: TagData) -> Shuffled[Tagged, TagBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, TagBatch.of, lambda sentence: len(sentence.ids))

    def training_step(
        self, model: Tagger | OutputTagger, batch: TagBatch, state: tuple[Any, ...] | None, moment: Moment
    ) -> TrainingStep:
        device = model.output.bias.device
        tags = batch.tags.to(device)
        logits = model(batch.ids.to(device), batch.lengths, batch.at.to(device), tags)
        return TrainingStep(model.loss(logits, tags), len(batch.tags), model.backend)

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs["labels"]), 3))

    def validate(self, model: Tagger | OutputTagger, data: TagData) -> Validation:
        return validation(tag_logits(model, data.valid), [tag for sentence in data.valid for tag in sentence.tags])


def spell(words: Sequence[str], vocab: Vocab) -> tuple[list[int], list[int]]:
    """The tokens of a sentence, and the last one of each word."""
    ids: list[int] = []
    ends: list[int] = []
    for word in words:
        ids += vocab.encode(f" {word}" if ids else word).tolist() or [UNK]
        ends.append(len(ids) - 1)
    return ids, ends


def encode(sentences: Iterable[Sentence], vocabs: Vocabs) -> list[Tagged]:
    classes = numbers_of(vocabs["labels"])
    found = []
    for words, tags, where in sentences:
        ids, ends = spell(words, vocabs["vocab"])
        found.append(Tagged(ids, ends, [class_of(tag, classes, f"{where} ff.") for tag in tags]))
    return found


@torch.no_grad()
def tag_logits(model: Tagger | OutputTagger, sentences: Sequence[Tagged]) -> Tensor:
    """(words, tags)."""
    device = model.output.bias.device
    batches = in_order(sentences, ROWS, TagBatch.of)
    return torch.cat([model(b.ids.to(device), b.lengths, b.at.to(device)).cpu() for b in batches])


def usual_tags(train: Iterable[Sentence], sentences: Iterable[Sentence]) -> list[str]:
    """Without a network: each word's most frequent tag; of a word never seen, the most frequent of all."""
    seen: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for sentence in train:
        total.update(sentence.tags)
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            seen.setdefault(word, Counter())[tag] += 1
    usual = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    commonest = total.most_common(1)[0][0]
    return [usual.get(word, commonest) for sentence in sentences for word in sentence.words]


TASK = TagTask
