"""A class for every text, n → 1: lines `label TAB text`."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.errors import OptionError, TextError
from recur.models import Classifier, ReaderOptions
from recur.text import LabelledText, Vocab, fit_lines, read_labelled
from recur.text.tokens import Ids
from recur.train.classes import class_scores, confusion
from recur.train.data import VOCAB_OPTIONS
from recur.train.examples import Shuffled, class_of, class_weights, classes_of, label_vocab, split
from recur.train.machine import pick_device
from recur.train.ngram_classes import best_ngrams
from recur.train.pairs import padded
from recur.train.tasks.task import Learned, Measured, Moment, Opened, Task, Vocabs

if TYPE_CHECKING:
    from recur.train.run import Run

ROWS = 256
"""Texts measured as one batch."""


class Example(NamedTuple):
    ids: Ids
    label: int


class TextBatch(NamedTuple):
    ids: Tensor
    lengths: Tensor
    """On the CPU, where scans want them."""
    classes: Tensor


def batch_of(examples: list[Example]) -> TextBatch:
    return TextBatch(*padded([e.ids for e in examples]), torch.tensor([e.label for e in examples]))


def encode_text(vocab: Vocab, text: str, where: str) -> Ids:
    ids = vocab.encode(text).astype(np.int64)
    if not len(ids):
        raise TextError(f"{where}: the text has no token")
    return ids


@dataclass(frozen=True)
class TextData:
    vocabs: Vocabs
    train: list[Example]
    valid: list[Example]


class ClassifyTask(Task):
    title = "the task classify"
    reads = frozenset({*ReaderOptions.__dataclass_fields__, *VOCAB_OPTIONS, "class_weights"})
    vocab_names = ("vocab", "labels")
    curve = "valid_error"

    def read(self, vocabs: Vocabs | None = None) -> TextData:
        train, valid, _ = split(self.config, read_labelled)
        if vocabs is None:
            options = {name: getattr(self.config, name) for name in VOCAB_OPTIONS}
            labels = label_vocab([example.label for example in train])
            vocabs = {"vocab": fit_lines((example.text for example in train), **options), "labels": labels}
        return TextData(vocabs, encode(train, vocabs), encode(valid, vocabs))

    def about(self, data: TextData) -> str:
        words, labels = (len(data.vocabs[name]) for name in self.vocab_names)
        return f"{len(data.train):,} texts to learn from, {words:,} tokens, {labels - 4} classes"

    def new_model(self, vocabs: Vocabs) -> Classifier:
        options = ReaderOptions(**{name: getattr(self.config, name) for name in ReaderOptions.__dataclass_fields__})
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.config.class_weights == "balanced" else None
        return Classifier(len(vocabs["vocab"]), len(classes_of(labels)), options, weights)

    def batches(self, data: TextData) -> Shuffled[Example]:
        return Shuffled(data.train, self.config.batch, self.config.seed, batch_of, lambda example: len(example.ids))

    def learn(self, model: Classifier, batch: TextBatch, state: Any, moment: Moment) -> Learned:
        device = model.output.bias.device
        logits = model(batch.ids.to(device), batch.lengths)
        return Learned(model.loss(logits, batch.classes.to(device)), len(batch.classes), model.backend)

    def limit(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs["labels"]), 3))

    def measure(self, model: Classifier, data: TextData) -> Measured:
        p = probabilities([model], data.valid)
        wanted = torch.tensor([example.label for example in data.valid])
        loss = float(-p[torch.arange(len(p)), wanted].clamp_min(1e-30).log().mean())
        scores = class_scores(confusion(wanted.tolist(), p.argmax(-1).tolist(), p.shape[1]))
        metrics = {"valid_error": 1 - scores["accuracy"], "valid_loss": loss}
        metrics |= {f"valid_{name}": value for name, value in scores.items()}
        said = f"valid accuracy {scores['accuracy']:6.2%}, macro F1 {scores['macro_f1']:.3f}"
        return Measured(metrics["valid_error"] + 1e-4 * loss, metrics, said)  # the loss decides between equals

    def open(self, run: Run, device: str = "cpu", also: Sequence[Run] = ()) -> TextClassifier:
        return TextClassifier([run, *also], device)


def encode(examples: Iterable[LabelledText], vocabs: Vocabs) -> list[Example]:
    classes = {label: k for k, label in enumerate(classes_of(vocabs["labels"]))}
    return [
        Example(encode_text(vocabs["vocab"], text, where), class_of(label, classes, where))
        for text, label, where in examples
    ]


@torch.no_grad()
def probabilities(models: list[Classifier], examples: list[Example]) -> Tensor:
    """(examples, classes): the mean over the models."""
    found = []
    for batch in Shuffled(examples, ROWS, 0, batch_of).in_order():
        device = models[0].output.bias.device
        each = [model(batch.ids.to(device), batch.lengths).softmax(-1) for model in models]
        found.append(torch.stack(each).mean(0).cpu())
    return torch.cat(found)


class TextClassifier(Opened):
    """A trained classifier, or several as one."""

    def __init__(self, runs: list[Run], device: str = "cpu") -> None:
        self.run = runs[0]
        for run in runs[1:]:
            if run.config.task != "classify" or run.vocabs != self.run.vocabs:
                raise OptionError(f"{run.path} and {self.run.path} differ in labels or tokens; they are not one model")
        self.models: list[Classifier] = [run.load_model(str(pick_device(device))) for run in runs]
        self.classes = classes_of(self.run.vocabs["labels"])

    def evaluate(self, texts: list[str] | None = None, **options: Any) -> dict[str, Any]:
        """Accuracy, macro F1 and the confusion matrix, and beside them the most frequent class and n-grams by class."""
        self.refuse(options)
        train, valid, test = split(self.run.config, read_labelled)
        wanted_texts = read_labelled(texts) if texts else test
        examples = encode(wanted_texts, self.run.vocabs)
        wanted = [example.label for example in examples]
        begun = time.perf_counter()
        given = probabilities(self.models, examples).argmax(-1).tolist()
        rate = len(examples) / (time.perf_counter() - begun)
        table = confusion(wanted, given, len(self.classes))
        found: dict[str, Any] = {"model": str(self.run.path), **class_scores(table), "texts": len(examples)}
        found |= {"texts_per_second": rate, "beside": []}
        labels = {label: k for k, label in enumerate(self.classes)}
        known, tuned = ([(e.text, labels[e.label]) for e in part if e.label in labels] for part in (train, valid))
        majority = Counter(k for _, k in known).most_common(1)[0][0]
        counted = best_ngrams(known, tuned, self.run.vocab.tokenizer)
        rows = {
            f"always {self.classes[majority]}": [majority] * len(wanted),
            f"{counted.order}-grams by class": counted.classify([e.text for e in wanted_texts]),
        }
        for name, guesses in rows.items():
            scores = class_scores(confusion(wanted, guesses, len(self.classes)))
            found["beside"].append({"model": name, **scores})
        return found | {"classes": list(self.classes), "confusion": table.tolist()}

    def predict(self, lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
        """The likeliest class of each line, and the probability of each."""
        self.refuse(options)
        numbered = enumerate(lines, start=1)
        while some := list(itertools.islice(numbered, ROWS)):
            ids = [encode_text(self.run.vocab, line.strip(), f"line {number}") for number, line in some]
            for (_, line), p in zip(some, probabilities(self.models, [Example(row, 0) for row in ids]), strict=True):
                chances = dict(zip(self.classes, p.tolist(), strict=True))
                yield {"input": line, "output": self.classes[int(p.argmax())], "probabilities": chances}

    def stream(self, text: str) -> Iterator[dict[str, float]]:
        """The probability of each class after every token, in constant memory; for a network of one direction."""
        carried = None
        for k in encode_text(self.run.vocab, text, "the text"):
            logits, carried = self.models[0].step(torch.tensor([int(k)]), carried)
            yield dict(zip(self.classes, logits[0].softmax(-1).tolist(), strict=True))


TASK = ClassifyTask
