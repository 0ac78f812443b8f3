"""What a trained tagger can do: tag, be measured beside each word's most frequent tag, tag words as they come in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from recur.models import OutputTagger, Tagger
from recur.tasks.classes import class_scores, classes_of, confusion
from recur.tasks.contract import Inputs, Predictor
from recur.tasks.examples import split, test_part
from recur.tasks.predictions import Prediction
from recur.tasks.tag.task import Tagged, encode, spell, tag_logits, usual_tags
from recur.text import UNK, read_tagged
from recur.typedefs import JsonObject


class TextTagger(Predictor[Tagger | OutputTagger]):
    """A trained tagger."""

    @property
    def tags(self) -> tuple[str, ...]:
        return classes_of(self.run.vocabs["labels"])

    def _answer(self, found: Prediction) -> list[str]:
        tags: list[str] = found["tags"]
        return tags

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Accuracy, macro F1 and the confusion matrix of all words, and beside them each word's most frequent tag."""
        self.refuse(options)
        sentences = read_tagged(texts) if texts else test_part(self.task.options, read_tagged)
        encoded = encode(sentences, self.run.vocabs)
        targets = [tag for sentence in encoded for tag in sentence.tags]
        begun = time.perf_counter()
        predictions = tag_logits(self.model, encoded).argmax(-1).tolist()
        rate = len(targets) / (time.perf_counter() - begun)
        table = confusion(targets, predictions, len(self.tags))
        beside = []
        if self.has_training_texts():
            train = split(self.task.options, read_tagged)[0]
            plain = [self.tags.index(tag) for tag in usual_tags(train, sentences)]
            scores = class_scores(confusion(targets, plain, len(self.tags)))
            beside = [{"model": "each word's most frequent tag", **scores}]
        return {
            "model": self.name,
            **class_scores(table),
            "words": len(targets),
            "words_per_second": rate,
            "beside": beside,
            "classes": list(self.tags),
            "confusion": table.tolist(),
        }

    def _predict(self, lines: Iterable[str], **options: Any) -> Iterator[JsonObject]:
        """The tags of each line's words, which stand between spaces."""
        self.refuse(options)
        for line in lines:
            words = line.split()
            ids, ends = spell(words, self.run.vocab)
            predictions = tag_logits(self.model, [Tagged(ids, ends, [0] * len(ends))]).argmax(-1).tolist()
            tags = [self.tags[k] for k in predictions]
            yield {"input": line, "output": " ".join(tags), "words": words, "tags": tags}

    def stream(self, words: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each word with its tag as soon as it is read, in constant memory; for a network that reads forward."""
        state, first = None, True
        for word in Inputs(words, files=False):
            ids = self.run.vocab.encode(word if first else f" {word}").tolist() or [UNK]
            first = False
            for k in ids:
                logits, state = self.model.step(torch.tensor([k], device=self.device), state)
            yield word, self.tags[int(logits.argmax())]


PREDICTOR = TextTagger
