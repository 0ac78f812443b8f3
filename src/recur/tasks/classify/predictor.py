"""What a trained classifier can do: classify, be measured beside plainer ones, follow a text as it comes in."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from recur.models import Classifier
from recur.tasks.classes import class_scores, classes_of, confusion, most_frequent, numbers_of
from recur.tasks.classify.ngrams import best_ngrams
from recur.tasks.classify.task import ROWS, Example, encode, encode_text, probabilities
from recur.tasks.contract import Predictor
from recur.tasks.examples import split, test_part
from recur.text import LabelledText, read_labelled
from recur.typedefs import JsonObject


class TextClassifier(Predictor[Classifier]):
    """A trained classifier, or several as one."""

    ensembles = True

    @property
    def classes(self) -> tuple[str, ...]:
        return classes_of(self.run.vocabs["labels"])

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Accuracy, macro F1 and the confusion matrix, and beside them the most frequent class and n-grams by class."""
        self.refuse(options)
        measured = read_labelled(texts) if texts else test_part(self.task.options, read_labelled)
        examples = encode(measured, self.run.vocabs)
        targets = [example.label for example in examples]
        begun = time.perf_counter()
        predictions = probabilities(self.models, examples).argmax(-1).tolist()
        rate = len(examples) / (time.perf_counter() - begun)
        table = confusion(targets, predictions, len(self.classes))
        found: JsonObject = {"model": self.name, **class_scores(table), "texts": len(examples)}
        found |= {"texts_per_second": rate, "beside": self._beside(measured, targets)}
        return found | {"classes": list(self.classes), "confusion": table.tolist()}

    def _beside(self, measured: Sequence[LabelledText], targets: Sequence[int]) -> list[JsonObject]:
        """Plainer classifiers on the same texts; none where what was learned from is not on this machine."""
        if not self.has_training_texts():
            return []
        train, valid, _ = split(self.task.options, read_labelled)
        numbers = numbers_of(self.run.vocabs["labels"])
        known, tuned = ([(e.text, numbers[e.label]) for e in part if e.label in numbers] for part in (train, valid))
        always = most_frequent([k for _, k in known])
        counted = best_ngrams(known, tuned, self.run.vocab.tokenizer)
        plain = {
            f"always {self.classes[always]}": [always] * len(targets),
            f"{counted.order}-grams by class": counted.classify([e.text for e in measured]),
        }
        return [
            {"model": name, **class_scores(confusion(targets, guesses, len(self.classes)))}
            for name, guesses in plain.items()
        ]

    def _predict(self, lines: Iterable[str], **options: Any) -> Iterator[JsonObject]:
        """The likeliest class of each line, and the probability of each."""
        self.refuse(options)
        numbered = enumerate(lines, start=1)
        while some := list(itertools.islice(numbered, ROWS)):
            ids = [encode_text(self.run.vocab, line.strip(), f"line {number}") for number, line in some]
            for (_, line), p in zip(some, probabilities(self.models, [Example(row, 0) for row in ids]), strict=True):
                chances = dict(zip(self.classes, p.tolist(), strict=True))
                yield {"input": line, "output": self.classes[int(p.argmax())], "probabilities": chances}

    def stream(self, text: str) -> Iterator[dict[str, float]]:
        """The probability of each class after every token, in constant memory; for a network that reads forward."""
        carried = None
        for k in encode_text(self.run.vocab, text, "the text"):
            logits, carried = self.model.step(torch.tensor([int(k)], device=self.device), carried)
            yield dict(zip(self.classes, logits[0].softmax(-1).tolist(), strict=True))


PREDICTOR = TextClassifier
