"""What a trained classifier of sequences of numbers can do: classify, be measured beside plainer ones, follow one as it
comes in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recur.data.signals import read_signals
from recur.models.signals import SignalClassifier
from recur.tasks.classes import class_scores, classes_of, confusion
from recur.tasks.classify.signal_task import SignalClassify, probabilities, targets_of
from recur.tasks.examples import split, test_part
from recur.tasks.predictor import Predictor
from recur.tasks.signal_plain import plain_classes
from recur.tasks.signals import signals_of, steps_in_turn
from recur.utils.types import JsonObject


class SignalClassifierPredictor(Predictor[SignalClassifier]):
    """A trained classifier of sequences of numbers, or several as one."""

    ensembles = True
    takes_files = True
    task: SignalClassify

    @property
    def classes(self) -> tuple[str, ...]:
        return classes_of(self.run.vocabs["labels"])

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Accuracy, macro F1 and the confusion matrix, and beside them plain classifiers."""
        self.refuse(options)
        vocabs, encode = self.run.vocabs, self.task.encode
        measured = encode(read_signals(texts) if texts else test_part(self.task.options, read_signals), vocabs)
        targets, size = targets_of(measured, len(self.classes))
        begun = time.perf_counter()
        predictions = probabilities(self.models, measured).argmax(-1).tolist()
        rate = len(measured) / (time.perf_counter() - begun)
        table = confusion(targets, predictions, size)
        found: JsonObject = {"model": self.name, **class_scores(table), "sequences": len(measured)}
        found["sequences_per_second"] = rate
        if self.has_training_texts():
            train, valid = (encode(part, vocabs) for part in split(self.task.options, read_signals)[:2])
            found["beside"] = [
                {"model": name, **class_scores(confusion(targets, [k for (k,) in labels], size))}
                for name, labels in plain_classes(train, valid, measured, self.classes)
            ]
        names = [*self.classes, *["not learned from"] * (size - len(self.classes))]
        return found | {"classes": names, "confusion": table.tolist()}

    def _predict(self, lines: Iterable[str | Path | np.ndarray[Any, Any]], **options: Any) -> Iterator[JsonObject]:
        """The likeliest class of each sequence, and the probability of each: files, folders, an .npz, or arrays."""
        self.refuse(options)
        for given in lines:
            signals = [signal._replace(target=None) for signal in signals_of(given)]
            examples = self.task.encode(signals, self.run.vocabs)
            for signal, p in zip(signals, probabilities(self.models, examples), strict=True):
                chances = dict(zip(self.classes, p.tolist(), strict=True))
                yield {"input": signal.where, "output": self.classes[int(p.argmax())], "probabilities": chances}

    def stream(self, steps: Iterable[np.ndarray[Any, Any]]) -> Iterator[dict[str, float]]:
        """The probability of each class after every step, or every few that are stacked, in constant memory; for a
        network that reads forward."""
        carried = None
        for x in steps_in_turn(steps, self.task.options.stack):
            logits, carried = self.model.step(torch.from_numpy(x).to(self.device), carried)
            yield dict(zip(self.classes, logits[0].softmax(-1).tolist(), strict=True))


PREDICTOR = SignalClassifierPredictor
