"""A tag for every word, n → n: CoNLL columns.

Words are spelled in tokens: one each, or as many as they have characters or pieces, a space between two words. A word's
tag is read at its last token, so that a network of one direction tags while it reads.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from recur.errors import OptionError
from recur.models import ReaderOptions, Tagger
from recur.text import UNK, Sentence, Vocab, fit_lines, read_tagged
from recur.train.classes import class_scores, confusion
from recur.train.data import VOCAB_OPTIONS
from recur.train.examples import Shuffled, class_of, class_weights, classes_of, label_vocab, split
from recur.train.machine import pick_device
from recur.train.pairs import padded
from recur.train.tasks.task import Learned, Measured, Moment, Opened, Task, Vocabs

if TYPE_CHECKING:
    from recur.train.run import Run

ROWS = 128


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


def batch_of(sentences: list[Tagged]) -> TagBatch:
    ids, lengths = padded([torch.tensor(s.ids).numpy() for s in sentences])
    at = [row * ids.shape[1] + end for row, s in enumerate(sentences) for end in s.ends]
    return TagBatch(ids, lengths, torch.tensor(at), torch.tensor([tag for s in sentences for tag in s.tags]))


def spell(words: Sequence[str], vocab: Vocab) -> tuple[list[int], list[int]]:
    """The tokens of a sentence, and the last one of each word."""
    ids: list[int] = []
    ends: list[int] = []
    for word in words:
        spelled = vocab.encode(f" {word}" if ids else word).tolist()
        ids += spelled or [UNK]
        ends.append(len(ids) - 1)
    return ids, ends


def encode(sentences: Iterable[Sentence], vocabs: Vocabs) -> list[Tagged]:
    classes = {tag: k for k, tag in enumerate(classes_of(vocabs["labels"]))}
    found = []
    for words, tags, where in sentences:
        ids, ends = spell(words, vocabs["vocab"])
        found.append(Tagged(ids, ends, [class_of(tag, classes, f"{where} ff.") for tag in tags]))
    return found


@dataclass(frozen=True)
class TagData:
    vocabs: Vocabs
    train: list[Tagged]
    valid: list[Tagged]


class TagTask(Task):
    title = "the task tag"
    reads = frozenset({*ReaderOptions.__dataclass_fields__, *VOCAB_OPTIONS, "class_weights"} - {"pool"})
    vocab_names = ("vocab", "labels")
    curve = "valid_error"

    def read(self, vocabs: Vocabs | None = None) -> TagData:
        train, valid, _ = split(self.config, read_tagged)
        if vocabs is None:
            options = {name: getattr(self.config, name) for name in VOCAB_OPTIONS}
            words = fit_lines((" ".join(sentence.words) for sentence in train), **options)
            vocabs = {"vocab": words, "labels": label_vocab([tag for sentence in train for tag in sentence.tags])}
        return TagData(vocabs, encode(train, vocabs), encode(valid, vocabs))

    def about(self, data: TagData) -> str:
        words, labels = (len(data.vocabs[name]) for name in self.vocab_names)
        tags = sum(len(sentence.tags) for sentence in data.train)
        return f"{len(data.train):,} sentences of {tags:,} words to learn from, {words:,} tokens, {labels - 4} tags"

    def new_model(self, vocabs: Vocabs) -> Tagger:
        options = ReaderOptions(**{name: getattr(self.config, name) for name in ReaderOptions.__dataclass_fields__})
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.config.class_weights == "balanced" else None
        return Tagger(len(vocabs["vocab"]), len(classes_of(labels)), options, weights)

    def batches(self, data: TagData) -> Shuffled[Tagged]:
        return Shuffled(data.train, self.config.batch, self.config.seed, batch_of, lambda sentence: len(sentence.ids))

    def learn(self, model: Tagger, batch: TagBatch, state: Any, moment: Moment) -> Learned:
        device = model.output.bias.device
        logits = model(batch.ids.to(device), batch.lengths, batch.at.to(device))
        return Learned(model.loss(logits, batch.tags.to(device)), len(batch.tags), model.backend)

    def limit(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs["labels"]), 3))

    def measure(self, model: Tagger, data: TagData) -> Measured:
        wanted = [tag for sentence in data.valid for tag in sentence.tags]
        logits = tag_logits(model, data.valid)
        loss = float(torch.nn.functional.cross_entropy(logits, torch.tensor(wanted)))
        scores = class_scores(confusion(wanted, logits.argmax(-1).tolist(), logits.shape[1]))
        metrics = {"valid_error": 1 - scores["accuracy"], "valid_loss": loss}
        metrics |= {f"valid_{name}": value for name, value in scores.items()}
        said = f"valid accuracy {scores['accuracy']:6.2%}, macro F1 {scores['macro_f1']:.3f}"
        return Measured(metrics["valid_error"] + 1e-4 * loss, metrics, said)  # the loss decides between equals

    def open(self, run: Run, device: str = "cpu", also: Sequence[Run] = ()) -> TextTagger:
        if also:
            raise OptionError("taggers do not tag as one; name one run")
        return TextTagger(run, device)


@torch.no_grad()
def tag_logits(model: Tagger, sentences: list[Tagged]) -> Tensor:
    """(words, tags)."""
    device = model.output.bias.device
    batches = Shuffled(sentences, ROWS, 0, batch_of).in_order()
    return torch.cat([model(b.ids.to(device), b.lengths, b.at.to(device)).cpu() for b in batches])


class TextTagger(Opened):
    """A trained tagger."""

    def __init__(self, run: Run, device: str = "cpu") -> None:
        self.run = run
        self.model: Tagger = run.load_model(str(pick_device(device)))
        self.tags = classes_of(run.vocabs["labels"])

    def evaluate(self, texts: list[str] | None = None, **options: Any) -> dict[str, Any]:
        """Accuracy, macro F1 and the confusion matrix of all words, and beside them each word's most frequent tag."""
        self.refuse(options)
        train, _, test = split(self.run.config, read_tagged)
        sentences = read_tagged(texts) if texts else test
        encoded = encode(sentences, self.run.vocabs)
        wanted = [tag for sentence in encoded for tag in sentence.tags]
        begun = time.perf_counter()
        given = tag_logits(self.model, encoded).argmax(-1).tolist()
        rate = len(wanted) / (time.perf_counter() - begun)
        table = confusion(wanted, given, len(self.tags))
        found: dict[str, Any] = {"model": str(self.run.path), **class_scores(table), "words": len(wanted)}
        seen: dict[str, Counter[str]] = {}
        for sentence in train:
            for word, tag in zip(sentence.words, sentence.tags, strict=True):
                seen.setdefault(word, Counter())[tag] += 1
        total = sum(seen.values(), Counter[str]())
        usual = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
        guesses = [usual.get(w, total.most_common(1)[0][0]) for sentence in sentences for w in sentence.words]
        numbers = [self.tags.index(tag) for tag in guesses]
        beside = {"model": "each word's usual tag", **class_scores(confusion(wanted, numbers, len(self.tags)))}
        found |= {"words_per_second": rate, "beside": [beside]}
        return found | {"classes": list(self.tags), "confusion": table.tolist()}

    def predict(self, lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
        """The tags of each line's words, which stand between spaces."""
        self.refuse(options)
        for line in lines:
            words = line.split()
            ids, ends = spell(words, self.run.vocab)
            given = tag_logits(self.model, [Tagged(ids, ends, [0] * len(ends))]).argmax(-1).tolist()
            tags = [self.tags[k] for k in given]
            yield {"input": line, "output": " ".join(tags), "words": words, "tags": tags}

    def stream(self, words: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each word with its tag as soon as it is read, in constant memory; for a network of one direction."""
        state, first = None, True
        for word in words:
            ids = self.run.vocab.encode(word if first else f" {word}").tolist() or [UNK]
            first = False
            for k in ids:
                logits, state = self.model.step(torch.tensor([k]), state)
            yield word, self.tags[int(logits.argmax())]


TASK = TagTask
