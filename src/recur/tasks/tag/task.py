"""Tagging: one tag per word, n → n, from CoNLL columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from recur.baselines.transducers import tagging_baselines
from recur.data.batching import Shuffled, in_order
from recur.data.text import read_tagged
from recur.errors import OptionError
from recur.i18n import Message
from recur.models import OutputTagger, WordTagger
from recur.models.tagger import TaggerEnsemble
from recur.runs import Vocabs
from recur.tasks.common.batching import FEW, with_time_scale
from recur.tasks.common.classification import TIE, class_names, class_scores, class_weights, confusion, total_weight
from recur.tasks.common.contract import (
    Baseline,
    PretrainedSlots,
    Remark,
    Task,
    TrainingProgress,
    TrainingStep,
    Validation,
)
from recur.tasks.common.metrics import format_metric, metric_label
from recur.tasks.common.options import with_input
from recur.tasks.common.registry import task_of
from recur.tasks.common.splits import reading_of, split
from recur.tasks.tag.data import (
    Collate,
    TagBatch,
    TagData,
    TaggedExample,
    allowed_moves,
    are_spans,
    compare,
    encode,
    fit_vocabs,
    span_scores,
    unseen_tags,
)
from recur.tasks.tag.options import TagOptions
from recur.utils.types import Metrics

ROWS = 128
"""Sentences measured as one batch."""

AnyTagger = WordTagger | OutputTagger
TagsWords = AnyTagger | TaggerEnsemble


class TagTask(Task[TagOptions, TagData, AnyTagger, TagBatch]):
    name = "tag"
    unit = "words"
    places = PretrainedSlots()

    @property
    def curve(self) -> str:
        return "valid_f1" if self.options.spans else "valid_error"

    @classmethod
    def settle(cls, options: TagOptions) -> TagOptions:
        options = with_input(options)
        if options.input == "numbers":
            numbers: TagOptions = task_of(options).settle(options)
            return numbers
        if options.recurrence == "output":
            options = options.with_defaults(direction="forward")
        elif options.direction == "forward" or options.class_weights == "balanced":
            options = options.with_defaults(crf=False)  # which can be streamed, and weighed
        if options.token == "char":
            options = options.with_defaults(characters="none", casing=False)  # they are read already
        if options.class_weights == "balanced" and options.crf and options.recurrence == "hidden":
            raise OptionError("--class-weights balanced is for --no-crf: a CRF has no loss of a single word")
        if options.spans is None:
            tags = {
                tag
                for sentence in read_tagged(options.texts, options.columns, reading_of(options))
                for tag in sentence.tags
            }
            options = options.changed(spans=are_spans(tags))
        return super().settle(with_time_scale(options, lambda: [len(s.ids) for s in cls(options).read().train]))

    def read(self, vocabs: Vocabs | None = None) -> TagData:
        train, valid, _ = split(self.options, partial(read_tagged, columns=self.options.columns), self.new_reading())
        vocabs = fit_vocabs(train, self.options) if vocabs is None else vocabs
        return TagData(vocabs, encode(train, vocabs), encode(valid, vocabs), train, valid)

    def describe(self, data: TagData) -> str:
        tokens, labels = len(data.vocabs["vocab"]), len(class_names(data.vocabs["labels"]))
        tags = sum(len(sentence.tags) for sentence in data.train)
        unseen = unseen_tags(data.valid_sentences, data.vocabs)
        said = f"; {say_unseen(unseen, 'the validation part')}" if unseen else ""
        return f"{len(data.train):,} training sentences of {tags:,} words, {tokens:,} tokens, {labels} tags{said}"

    def baselines(self, data: TagData) -> Iterator[Baseline]:
        targets = [sentence.tags for sentence in data.valid_sentences]
        for name, found in tagging_baselines(data.train_sentences, data.valid_sentences):
            metrics = self._metrics(self.measure(targets, found, class_names(data.vocabs["labels"])))
            yield Baseline(name, metrics[self.curve], metrics)

    def new_model(self, vocabs: Vocabs) -> AnyTagger:
        o, labels = self.options, vocabs["labels"]
        weights = class_weights(labels) if o.class_weights == "balanced" else None
        sizes = len(vocabs["vocab"]), len(class_names(labels))
        if o.recurrence == "output":
            return OutputTagger(*sizes, o, weights)
        return WordTagger(
            *sizes,
            o,
            weights,
            characters=len(vocabs["characters"]) if o.reads_forms else 0,
            frequencies=torch.tensor(vocabs["vocab"].counts, dtype=torch.get_default_dtype()),
            allowed=allowed_moves(vocabs) if o.constrained else None,
        )

    def batches(self, data: TagData) -> Shuffled[TaggedExample, TagBatch]:
        collate = Collate(data.vocabs)
        return Shuffled(data.train, self.batch, self.options.seed, collate, lambda sentence: len(sentence.ids))

    def training_step(
        self, model: AnyTagger, batch: TagBatch, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        device = model.output.bias.device
        tags = batch.tags.to(device)
        scores = model(batch.words.to(device), tags)
        loss = model.loss(scores, batch.words.counts, tags)
        weight = total_weight(tags, model.class_weights)
        return TrainingStep(loss, int(batch.words.counts.sum()), model.backend, weight=weight)

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs["labels"]), 3))

    def validate(self, model: AnyTagger, data: TagData) -> Validation:
        found = tag(model, data.valid, data.vocabs)
        targets = [sentence.tags for sentence in data.valid_sentences]
        scores = self.measure(targets, found.tags, class_names(data.vocabs["labels"]))
        metrics = self._metrics(scores)
        if found.loss is not None:
            metrics["valid_loss"] = found.loss
        if unseen := unseen_tags(data.valid_sentences, data.vocabs):
            metrics["valid_unseen"] = unseen.total() / sum(map(len, targets))
        summary = (
            f"valid {', '.join(f'{metric_label(name)} {format_metric(name, value)}' for name, value in scores.items())}"
        )
        decides = 1 - scores["f1"] if self.options.spans else metrics["valid_error"]
        return Validation(decides + TIE * (found.loss or 0.0), metrics, summary)

    def sample(self, model: AnyTagger, data: TagData) -> str:
        few = data.valid_sentences[:FEW]
        found = tag(model, data.valid[: len(few)], data.vocabs).tags
        return "\n".join(
            " ".join(f"{word}/{a}" + f"✗{b}" * (a != b) for word, a, b in zip(one.words, tags, one.tags, strict=True))
            for one, tags in zip(few, found, strict=True)
        )

    def remarks(self, metrics: Metrics) -> Iterator[Remark]:
        if share := metrics.get("unseen"):
            unseen = Message(
                "{share} of the words have tags that are not in the training set; each counts as an error",
                share=format_metric("unseen", share),
            )  # fmt: skip
            yield Remark(unseen)

    def measure(
        self, targets: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], classes: Sequence[str]
    ) -> Metrics:
        """Return F1, precision and recall of spans, or else the macro F1 of tags; and the accuracy."""
        scores = class_scores(tag_confusion(targets, predictions, classes)[1])
        if not self.options.spans:
            return scores
        return {**span_scores(compare(targets, predictions)), "accuracy": scores["accuracy"]}

    def _metrics(self, scores: Metrics) -> Metrics:
        return {"valid_error": 1 - scores["accuracy"], **{f"valid_{name}": value for name, value in scores.items()}}


class TagPredictions(NamedTuple):
    """Predicted tags and their loss."""

    tags: list[list[str]]
    loss: float | None
    """Nats a word, of the sentences whose tags it knows; None if there are none."""


@torch.no_grad()
def tag(model: TagsWords, sentences: Sequence[TaggedExample], vocabs: Vocabs) -> TagPredictions:
    """Return the best tags of sentences, in batches of similar length."""
    device, names = model.output.bias.device, class_names(vocabs["labels"])
    order = sorted(range(len(sentences)), key=lambda k: len(sentences[k].ids))
    tags: list[list[str]] = [[]] * len(sentences)
    total, count, done = 0.0, 0, 0
    for batch in in_order([sentences[k] for k in order], ROWS, Collate(vocabs)):
        counts = batch.words.counts
        scores = model(batch.words.to(device))
        part = model.negative_log_likelihood(scores, counts, batch.tags.to(device))
        total, count = total + float(part.total), count + part.words
        best = model.tags.nbest(scores, counts).tags[:, 0].tolist()
        for row, n in zip(best, counts.tolist(), strict=True):
            tags[order[done]] = [names[k] for k in row[:n]]
            done += 1
    return TagPredictions(tags, total / count if count else None)


def tag_confusion(
    targets: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]], classes: Sequence[str]
) -> tuple[list[str], Any]:
    """Return the names of all tags, including those outside the training set, and the confusion matrix."""
    pairs = [(a, b) for x, y in zip(targets, predictions, strict=True) for a, b in zip(x, y, strict=True)]
    names = [*classes, *sorted({a for a, _ in pairs} - set(classes))]
    numbers = {name: k for k, name in enumerate(names)}
    return names, confusion([numbers[a] for a, _ in pairs], [numbers[b] for _, b in pairs], len(names))


def say_unseen(unseen: dict[str, int], where: str) -> str:
    """Of tags that training did not have."""
    named = ", ".join(list(unseen)[:5]) + ", …" * (len(unseen) > 5)
    count = sum(unseen.values())
    return f"{count:,} word{'s' * (count > 1)} of {where} with tags that training has not ({named}) count as errors"


TASK = TagTask
