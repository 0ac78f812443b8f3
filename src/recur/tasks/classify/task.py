"""A class for every text, n → 1: lines `label TAB text`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from recur.errors import TextError
from recur.models import Classifier
from recur.run import Vocabs
from recur.tasks.classes import (
    class_of,
    class_weights,
    classes_of,
    error_of_always,
    label_vocab,
    most_frequent,
    numbers_of,
    validation,
)
from recur.tasks.classify.options import ClassifyOptions
from recur.tasks.contract import Baseline, Moment, Task, TrainingStep, Validation
from recur.tasks.examples import Shuffled, in_order, padded, split
from recur.tasks.tokens import choose_token, with_time_scale
from recur.text import LabelledText, Vocab, fit_lines, read_labelled
from recur.text.tokens import Ids

ROWS = 256
"""Texts measured as one batch."""


class Example(NamedTuple):
    ids: Ids
    label: int

    @property
    def size(self) -> int:
        return len(self.ids)


class TextBatch(NamedTuple):
    ids: Tensor
    lengths: Tensor
    """On the CPU, where scans want them."""
    classes: Tensor

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Self:
        return cls(*padded([e.ids for e in examples]), torch.tensor([e.label for e in examples]))


@dataclass(frozen=True)
class TextData:
    vocabs: Vocabs
    train: list[Example]
    valid: list[Example]


class ClassifyTask(Task[ClassifyOptions, TextData, Classifier, TextBatch]):
    name = "classify"
    curve = "valid_error"
    unit = "texts"

    @classmethod
    def settle(cls, options: ClassifyOptions) -> ClassifyOptions:
        if options.token is None:
            texts = (example.text for example in read_labelled(options.texts))
            options = options.changed(token=choose_token(texts))
        options = options.for_token(str(options.token))
        return super().settle(with_time_scale(options, lambda: [text.size for text in cls(options).read().train]))

    def read(self, vocabs: Vocabs | None = None) -> TextData:
        train, valid, _ = split(self.options, read_labelled)
        if vocabs is None:
            texts, token = (example.text for example in train), self.options.token or "char"
            words = fit_lines(texts, token, **self.options.vocab_options())
            vocabs = {"vocab": words, "labels": label_vocab(example.label for example in train)}
        return TextData(vocabs, encode(train, vocabs), encode(valid, vocabs))

    def describe(self, data: TextData) -> str:
        words, kind = len(data.vocabs["vocab"]), data.vocabs["vocab"].tokenizer.kind
        classes = len(classes_of(data.vocabs["labels"]))
        return f"{len(data.train):,} texts to learn from, {words:,} tokens ({kind}s), {classes} classes"

    def baselines(self, data: TextData) -> list[Baseline]:
        always = most_frequent([example.label for example in data.train])
        error = error_of_always(always, [example.label for example in data.valid])
        return [Baseline(f"always {classes_of(data.vocabs['labels'])[always]}", error)]

    def new_model(self, vocabs: Vocabs) -> Classifier:
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.options.class_weights == "balanced" else None
        return Classifier(len(vocabs["vocab"]), len(classes_of(labels)), self.options, weights)

    def batches(self, data: TextData) -> Shuffled[Example, TextBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, TextBatch.of, lambda example: example.size)

    def training_step(
        self, model: Classifier, batch: TextBatch, state: tuple[Any, ...] | None, moment: Moment
    ) -> TrainingStep:
        device = model.output.bias.device
        logits = model(batch.ids.to(device), batch.lengths)
        return TrainingStep(model.loss(logits, batch.classes.to(device)), len(batch.classes), model.backend)

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs["labels"]), 3))

    def validate(self, model: Classifier, data: TextData) -> Validation:
        p = probabilities([model], data.valid)
        return validation(p.clamp_min(1e-30).log(), [example.label for example in data.valid])


def encode_text(vocab: Vocab, text: str, where: str) -> Ids:
    ids = vocab.encode(text).astype(np.int64)
    if not len(ids):
        raise TextError(f"{where}: the text has no token")
    return ids


def encode(examples: Iterable[LabelledText], vocabs: Vocabs) -> list[Example]:
    classes = numbers_of(vocabs["labels"])
    return [
        Example(encode_text(vocabs["vocab"], text, where), class_of(label, classes, where))
        for text, label, where in examples
    ]


@torch.no_grad()
def probabilities(models: Sequence[Classifier], examples: Sequence[Example]) -> Tensor:
    """(examples, classes): the mean over the models."""
    found = []
    for batch in in_order(examples, ROWS, TextBatch.of):
        device = models[0].output.bias.device
        each = [model(batch.ids.to(device), batch.lengths).softmax(-1) for model in models]
        found.append(torch.stack(each).mean(0).cpu())
    return torch.cat(found)


TASK = ClassifyTask
