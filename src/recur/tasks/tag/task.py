"""Tagging: one tag per word, n → n, from CoNLL columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from recur.baselines.transducers import FeatureCRF, tagging_baselines
from recur.data.batching import Shuffled, in_order
from recur.data.text import read_tagged
from recur.errors import OptionError
from recur.i18n import Message
from recur.models import OutputTagger, WordTagger
from recur.models.tagger import UNSEEN_TAG, TaggerEnsemble
from recur.nn.crf import length_mask
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
from recur.tasks.tag.blend import LINEAR_ALONE, NETWORK_ALONE, SHARES, BlendedTagger, LazyFeatureCRF
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
"""Sentences per batch in evaluation and prediction."""

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
            options = options.with_defaults(crf=False)  # a CRF has no streaming and no class weights
        if options.token == "char":
            options = options.with_defaults(characters="none", casing=False)  # the tokens are characters
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
        linear = LazyFeatureCRF(vocabs, train)
        return TagData(vocabs, encode(train, vocabs), encode(valid, vocabs), train, valid, linear)

    def describe(self, data: TagData) -> str:
        tokens, labels = len(data.vocabs["vocab"]), len(class_names(data.vocabs["labels"]))
        tags = sum(len(sentence.tags) for sentence in data.train)
        unseen = unseen_tags(data.valid_sentences, data.vocabs)
        note = f"; {unseen_message(unseen, 'the validation part')}" if unseen else ""
        return f"{len(data.train):,} training sentences of {tags:,} words, {tokens:,} tokens, {labels} tags{note}"

    def baselines(self, data: TagData) -> Iterator[Baseline]:
        targets = [sentence.tags for sentence in data.valid_sentences]
        for name, found in tagging_baselines(data.train_sentences, data.valid_sentences, data.linear.fitted):
            metrics = self._metrics(self.measure(targets, found, class_names(data.vocabs["labels"])))
            yield Baseline(name, metrics[self.curve], metrics)

    def new_model(self, vocabs: Vocabs) -> AnyTagger:
        o, labels = self.options, vocabs["labels"]
        weights = class_weights(labels) if o.class_weights == "balanced" else None
        sizes = len(vocabs["vocab"]), len(class_names(labels))
        if o.recurrence == "output":
            return OutputTagger(*sizes, o, weights)
        words: dict[str, Any] = {
            "characters": len(vocabs["characters"]) if o.reads_forms else 0,
            "frequencies": torch.tensor(vocabs["vocab"].counts, dtype=torch.get_default_dtype()),
            "allowed": allowed_moves(vocabs) if o.constrained else None,
        }
        if "features" in vocabs:
            return BlendedTagger(vocabs["features"], class_names(labels), *sizes, o, weights, **words)
        return WordTagger(*sizes, o, weights, **words)

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
        targets = [sentence.tags for sentence in data.valid_sentences]
        if isinstance(model, BlendedTagger):
            found, loss, network = self._best_blend(model, data, targets)
        else:
            found = tag(model, data.valid, data.vocabs)
            loss, network = found.loss, {}
        scores = self.measure(targets, found.tags, class_names(data.vocabs["labels"]))
        metrics = self._metrics(scores) | network
        if loss is not None:  # loss of the network alone, as in training
            metrics["valid_loss"] = loss
        if unseen := unseen_tags(data.valid_sentences, data.vocabs):
            metrics["valid_unseen"] = unseen.total() / sum(map(len, targets))
        summary = (
            f"valid {', '.join(f'{metric_label(name)} {format_metric(name, value)}' for name, value in scores.items())}"
        )
        decides = 1 - scores["f1"] if self.options.spans else metrics["valid_error"]
        return Validation(decides + TIE * (loss or 0.0), metrics, summary)

    def _best_blend(
        self, model: BlendedTagger, data: TagData, targets: Sequence[Sequence[str]]
    ) -> tuple[TagPredictions, float | None, Metrics]:
        """Set the shares of the blend to the best on the validation set, by F1 or accuracy.

        The candidates are the shares with the highest likelihood, the network alone and the linear CRF alone. Return
        the predictions, and the loss and the metrics of the network alone.
        """
        if not model.linear.weights.any():
            model.linear.load_state_dict(data.linear.fitted.state_dict())
        loss, classes = choose_shares(model, data), class_names(data.vocabs["labels"])
        name, tried = "f1" if self.options.spans else "accuracy", []
        for shares in dict.fromkeys([tuple(model.shares.tolist()), NETWORK_ALONE, LINEAR_ALONE]):
            model.shares.copy_(torch.tensor(shares))
            found = tag(model, data.valid, data.vocabs)
            tried.append((shares, found, self.measure(targets, found.tags, classes)))
        shares, best, _ = max(tried, key=lambda one: one[2][name])
        model.shares.copy_(torch.tensor(shares))
        alone = next(scores for shares, _, scores in tried if shares == NETWORK_ALONE)
        return best, loss, {"valid_network_accuracy": alone["accuracy"], "valid_network_share": model.network_share}

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
        share = metrics.get("network_share", 1.0)
        if not share:
            yield Remark(Message("the CRF on words is better on the validation set and is used instead of the network"))
        elif share < 1:
            blend = Message("the model is a blend: network {network:.0%}, CRF on words {other:.0%}",
                            network=share, other=1 - share)  # fmt: skip
            yield Remark(blend)

    def measure(
        self, targets: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], classes: Sequence[str]
    ) -> Metrics:
        """Return the accuracy, and F1, precision and recall of spans; for other tags the macro F1."""
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
    """Mean loss in nats per word, over the sentences whose tags are all in the training set; None without any."""


@torch.no_grad()
def choose_shares(model: BlendedTagger, data: TagData) -> float | None:
    """Set the shares with the highest likelihood of the validation set; return the loss of the network alone."""
    device, words = model.output.bias.device, 0
    fields = {pair: model.blended(*pair) for pair in SHARES}
    losses = dict.fromkeys(SHARES, 0.0)
    for batch in in_order(sorted(data.valid, key=lambda s: len(s.ids)), ROWS, Collate(data.vocabs, model.linear)):
        parts, tags = model.parts(batch.words.to(device)), batch.tags.to(device)
        known = ((tags != UNSEEN_TAG) | ~length_mask(parts[0], batch.words.counts)).all(1).cpu()
        if not known.any():
            continue
        mine, other, tags = (part[known.to(device)] for part in (*parts, tags))
        counts = batch.words.counts[known]
        words += int(counts.sum())
        for (a, b), field in fields.items():
            losses[a, b] -= float(field.log_likelihood(a * mine + b * other, counts, tags).sum())
    if not words:
        return None
    model.shares.copy_(torch.tensor(min(SHARES, key=losses.__getitem__)))
    return losses[NETWORK_ALONE] / words


@torch.no_grad()
def tag(model: TagsWords, sentences: Sequence[TaggedExample], vocabs: Vocabs) -> TagPredictions:
    """Return the best tags of sentences, which are read in batches of similar length."""
    device, names = model.output.bias.device, class_names(vocabs["labels"])
    order = sorted(range(len(sentences)), key=lambda k: len(sentences[k].ids))
    tags: list[list[str]] = [[]] * len(sentences)
    total, count, done = 0.0, 0, 0
    decoder = model.decoder
    for batch in in_order([sentences[k] for k in order], ROWS, Collate(vocabs, linear_of(model))):
        counts, words = batch.words.counts, batch.words.to(device)
        scores = model.scores(words)
        part = model.negative_log_likelihood(scores, counts, batch.tags.to(device), decoder)
        total, count = total + float(part.total), count + part.words
        best = decoder.nbest(scores, counts).tags[:, 0].tolist()
        for row, n in zip(best, counts.tolist(), strict=True):
            tags[order[done]] = [names[k] for k in row[:n]]
            done += 1
    return TagPredictions(tags, total / count if count else None)


def linear_of(model: TagsWords) -> FeatureCRF | None:
    """Return the linear CRF of a blended tagger, or None. Batches must contain the features that the CRF reads."""
    first = model.members[0] if isinstance(model, TaggerEnsemble) else model
    return first.linear if isinstance(first, BlendedTagger) else None


def tag_confusion(
    targets: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]], classes: Sequence[str]
) -> tuple[list[str], Any]:
    """Return the names of all tags, including those outside the training set, and the confusion matrix."""
    pairs = [(a, b) for x, y in zip(targets, predictions, strict=True) for a, b in zip(x, y, strict=True)]
    names = [*classes, *sorted({a for a, _ in pairs} - set(classes))]
    numbers = {name: k for k, name in enumerate(names)}
    return names, confusion([numbers[a] for a, _ in pairs], [numbers[b] for _, b in pairs], len(names))


def unseen_message(unseen: dict[str, int], where: str) -> str:
    """Return a message about tags outside the training set."""
    named = ", ".join(list(unseen)[:5]) + ", …" * (len(unseen) > 5)
    count = sum(unseen.values())
    words = f"{count:,} word{'s' * (count > 1)} of {where}"
    return f"{words} with tags that are not in the training set ({named}) count as errors"


TASK = TagTask
