"""Trained image classifier: classification and evaluation against baselines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recur.data.images import Image, as_pixels, read_images
from recur.models import GridClassifier
from recur.tasks.common.classification import class_names, class_scores, confusion, probability_scores
from recur.tasks.common.predictor import Predictor
from recur.tasks.grid.task import GridTask, encode, image_baselines, image_parts, probabilities
from recur.utils.types import JsonObject


class ImageClassifier(Predictor[GridClassifier]):
    """Trained image classifier, or an ensemble."""

    ensembles = True
    takes_files = True
    task: GridTask

    @property
    def classes(self) -> tuple[str, ...]:
        return class_names(self.run.vocabs["labels"])

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Accuracy, macro F1 and the confusion matrix, and beside them the most frequent class, the nearest mean of a
        class and a softmax of the pixels."""
        self.refuse(options)
        o, vocabs = self.task.options, self.run.vocabs
        measured = encode(self.examples(texts, read_images), o, vocabs)
        targets = [example.label for example in measured]
        begun = time.perf_counter()
        p = probabilities(self.models, measured, o)
        rate = len(measured) / (time.perf_counter() - begun)
        K = len(self.classes)
        table = confusion(targets, p.argmax(-1).tolist(), K)
        found: JsonObject = {"model": self.name, **probability_scores(p.log(), targets), "images": len(measured)}
        found["images_per_second"] = rate
        if self.has_training_texts():
            o = self.task.options  # which names the texts where they are now
            train = encode(image_parts(o)[0], o, vocabs)
            plain = image_baselines(train, measured, o, self.classes)
            found["beside"] = [
                {"model": name, **class_scores(confusion(targets, guesses, K))} for name, guesses in plain.items()
            ]
        return found | {"classes": list(self.classes), "confusion": table.tolist()}

    def _predict(self, lines: Iterable[str | Path | np.ndarray[Any, Any]], **options: Any) -> Iterator[JsonObject]:
        """The likeliest class of each image, and the probability of each: files, folders, an .npz, or pixels."""
        self.refuse(options)
        for given in lines:
            if isinstance(given, np.ndarray):
                images = [Image(as_pixels(given, "the image"), None, "the image")]
            else:
                images = read_images([str(given)], labelled=False)
            examples = encode(images, self.task.options, None)
            for image, p in zip(images, probabilities(self.models, examples, self.task.options), strict=True):
                chances = dict(zip(self.classes, p.tolist(), strict=True))
                yield {"input": image.where, "output": self.classes[int(p.argmax())], "probabilities": chances}


PREDICTOR = ImageClassifier
