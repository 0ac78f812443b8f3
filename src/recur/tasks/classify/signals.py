"""A class for every sequence of numbers, n → 1: .npz, or a folder of .npy and .csv (recur/signals)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.baselines.classifiers import class_baselines
from recur.data.signals import Signal, label_of, read_signals
from recur.models.classifiers import NO_LABEL, SignalClassifier
from recur.runs import Vocabs
from recur.tasks.classify.options import ClassifyOptions
from recur.tasks.common.batching import FEW, class_examples
from recur.tasks.common.classification import (
    class_names,
    class_scores,
    class_weights,
    confusion,
    total_weight,
    validate_classes,
)
from recur.tasks.common.contract import Baseline, TrainingProgress, TrainingStep, Validation
from recur.tasks.common.predictor import Predictor
from recur.tasks.common.signals import (
    SignalBatch,
    SignalData,
    SignalExample,
    SignalTask,
    by_length,
    signals_of,
    steps_in_turn,
)
from recur.tasks.common.splits import split
from recur.utils.types import JsonObject


class SignalClassify(SignalTask[ClassifyOptions, SignalClassifier]):
    name = "classify"
    unit = "sequences"
    defaults = {"hidden_size": 128, "pool": "max", "dropout_input": 0.0, "dropout_output": 0.2, "lr": 0.003}

    @property
    def curve(self) -> str:
        return "valid_error"

    @staticmethod
    def targets(signal: Signal) -> tuple[str, ...]:
        return (label_of(signal),)

    def baselines(self, data: SignalData) -> Iterator[Baseline]:
        classes = class_names(data.vocabs["labels"])
        targets, size = targets_of(data.valid, len(classes))
        for guess in class_baselines(data.train, data.valid, data.valid, classes):
            scores = class_scores(confusion(targets, [k for (k,) in guess.labels], size))
            metrics = {f"valid_{name}": value for name, value in scores.items()}
            yield Baseline(guess.name, 1 - scores["accuracy"], metrics)

    def new_model(self, vocabs: Vocabs) -> SignalClassifier:
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.options.class_weights == "balanced" else None
        return SignalClassifier(self.width(vocabs), len(class_names(labels)), self.options, weights)

    def training_step(
        self, model: SignalClassifier, batch: SignalBatch, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        logits = model(batch.x.to(model.device), batch.lengths)
        loss = model.loss(logits, batch.labels[:, 0].to(model.device))
        weight = total_weight(batch.labels[:, 0], model.class_weights)
        return TrainingStep(loss, len(batch.x), model.backend, weight=weight)

    def validate(self, model: SignalClassifier, data: SignalData) -> Validation:
        p = probabilities([model], data.valid)
        return validate_classes(p.clamp_min(1e-30).log(), targets_of(data.valid, p.shape[1])[0])

    def sample(self, model: SignalClassifier, data: SignalData) -> str:
        few, classes = data.valid[:FEW], class_names(data.vocabs["labels"])
        found = probabilities([model], few).argmax(-1).tolist()
        shown = [f"sequence {n}, {example.size} steps" for n, example in enumerate(few, 1)]
        return class_examples(shown, found, targets_of(few, len(classes))[0], classes)


def targets_of(examples: Sequence[SignalExample], classes: int) -> tuple[list[int], int]:
    """Their classes, and how many there are: one more where some were not learned from, which count as errors."""
    targets = [classes if example.labels[0] == NO_LABEL else example.labels[0] for example in examples]
    return targets, classes + (classes in targets)


@torch.no_grad()
def probabilities(models: Sequence[SignalClassifier], examples: Sequence[SignalExample]) -> Tensor:
    """(examples, classes): the mean over the models."""

    def run(batch: SignalBatch) -> Tensor:
        x = batch.x.to(models[0].device)
        return torch.stack([model(x, batch.lengths).softmax(-1) for model in models]).mean(0).cpu()

    return torch.stack(by_length(examples, run))


TASK = SignalClassify


class SignalClassifierPredictor(Predictor[SignalClassifier]):
    """A trained classifier of sequences of numbers, or several as one."""

    ensembles = True
    takes_files = True
    task: SignalClassify

    @property
    def classes(self) -> tuple[str, ...]:
        return class_names(self.run.vocabs["labels"])

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Accuracy, macro F1 and the confusion matrix, and beside them plain classifiers."""
        self.refuse(options)
        vocabs, encode = self.run.vocabs, self.task.encode
        measured = encode(self.examples(texts, read_signals), vocabs)
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
                for name, labels in class_baselines(train, valid, measured, self.classes)
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
