"""Trained text classifier: classification, evaluation against baselines, and streaming."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from recur.baselines.classifiers import FittedClassifier, TextBaseline, linear_baselines, text_baselines
from recur.data.text import read_labelled
from recur.data.text.labelled import TableInputs, read_inputs
from recur.tasks.classify.data import ROWS, TextExample, TextModel, encode, encode_text, log_probabilities, mean_of
from recur.tasks.common.classification import (
    class_names,
    class_numbers_with_unseen,
    class_scores,
    confusion,
    probability_scores,
)
from recur.tasks.common.predictor import Predictor
from recur.utils.types import JsonObject, Metrics


class TextClassifier(Predictor[TextModel]):
    """Trained text classifier, or an ensemble."""

    ensembles = True

    @property
    def classes(self) -> tuple[str, ...]:
        return class_names(self.run.vocabs["labels"])

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Accuracy, macro F1, loss, calibration error and the confusion matrix; beside them the parts of a mixture, the
        most frequent class, n-grams by class and TF-IDF logistic regression."""
        self.refuse(options)
        measured = self.examples(texts, partial(read_labelled, classes=self.classes))
        examples = encode(measured, self.run.vocabs)
        targets = [example.label for example in examples]
        begun = time.perf_counter()
        parts = [model.parts(examples) for model in self.models]
        log_p = mean_of([model.mixed(part) for model, part in zip(self.models, parts, strict=True)])
        rate = len(examples) / (time.perf_counter() - begun)
        labels = list(class_numbers_with_unseen((example.label for example in measured), self.run.vocabs["labels"]))
        table = confusion(targets, log_p.argmax(-1).tolist(), len(labels))
        found: JsonObject = {"model": self.name, **probability_scores(log_p, targets), "texts": len(examples)}
        found["texts_per_second"] = rate
        if len(labels) > len(self.classes):
            found["unseen_labels"] = labels[len(self.classes) :]
        if self.model.blend is not None:
            alone = [model.temperature(part[0]) for model, part in zip(self.models, parts, strict=True)]
            found["network_accuracy"] = probability_scores(mean_of(alone), targets)["accuracy"]
        written = [example.text for example in examples]
        beside = [
            {"model": plain.name, **probability_scores(plain.log_probabilities(written), targets)}
            for plain in self._plain()
        ]
        return found | {"beside": beside, "classes": labels, "confusion": table.tolist()}

    def _plain(self) -> Iterator[TextBaseline]:
        """Plainer classifiers; those that the run does not keep only where what was learned from is on this machine."""
        linear = self.model.linear
        kept = None if linear is None else FittedClassifier(linear)
        if not self.has_training_texts():
            return iter(() if kept is None else linear_baselines(kept))
        data = self.task.read(self.run.vocabs)
        train, valid = ([(e.text, e.label) for e in part] for part in (data.train, data.valid))
        fitted = kept or data.linear.fitted
        return text_baselines(train, valid, self.run.vocab.tokenizer, self.classes, fitted)

    def read_inputs(self, name: str) -> TableInputs | None:
        """Read the texts of a table, as the training files were read; None if each line of the file is a text."""
        rows = read_inputs(name, self.new_reading(), self.classes)
        return None if rows is None else TableInputs(name, rows)

    def label_scores(self, labels: Sequence[str], outputs: Sequence[Any]) -> Metrics:
        """Return accuracy and macro F1."""
        numbers = class_numbers_with_unseen(labels, self.run.vocabs["labels"])
        targets, found = ([numbers[one] for one in side] for side in (labels, outputs))
        return class_scores(confusion(targets, found, len(numbers)))

    def _predict(self, lines: Iterable[str], **options: Any) -> Iterator[JsonObject]:
        """The likeliest class of each line, and the probability of each."""
        self.refuse(options)
        numbered = enumerate(lines, start=1)
        while some := list(itertools.islice(numbered, ROWS)):
            ids = [encode_text(self.run.vocab, line.strip(), f"line {number}") for number, line in some]
            examples = [TextExample(row, 0, line.strip()) for row, (_, line) in zip(ids, some, strict=True)]
            for (_, line), p in zip(some, log_probabilities(self.models, examples).exp(), strict=True):
                chances = dict(zip(self.classes, p.tolist(), strict=True))
                yield {"input": line, "output": self.classes[int(p.argmax())], "probabilities": chances}

    def stream(self, text: str) -> Iterator[dict[str, float]]:
        """The probability of each class after every token, in constant memory; for a network that reads forward, and
        of the network alone."""
        carried = None
        for k in encode_text(self.run.vocab, text, "the text"):
            logits, carried = self.model.step(torch.tensor([int(k)], device=self.device), carried)
            yield dict(zip(self.classes, self.model.temperature(logits[0].log_softmax(-1)).exp().tolist(), strict=True))


PREDICTOR = TextClassifier
