"""A class for every sequence of numbers, n → 1: .npz, or a folder of .npy and .csv (recur/signals)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from recur.data.signals import Signal, label_of
from recur.models.signals import NO_LABEL, SignalClassifier
from recur.runs import Vocabs
from recur.tasks.classes import class_scores, class_weights, classes_of, confusion, validation, weight_of
from recur.tasks.classify.options import ClassifyOptions
from recur.tasks.contract import Baseline, Moment, TrainingStep, Validation
from recur.tasks.signal_plain import plain_classes
from recur.tasks.signals import Example, SignalBatch, SignalData, SignalTask, by_length
from recur.tasks.watching import FEW, with_classes


class SignalClassify(SignalTask[ClassifyOptions, SignalClassifier]):
    name = "classify"
    unit = "sequences"
    defaults = {"hidden": 128, "pool": "max", "dropout_input": 0.0, "dropout_output": 0.2, "rate": 0.003}

    @property
    def curve(self) -> str:
        return "valid_error"

    @staticmethod
    def targets(signal: Signal) -> tuple[str, ...]:
        return (label_of(signal),)

    def baselines(self, data: SignalData) -> Iterator[Baseline]:
        classes = classes_of(data.vocabs["labels"])
        targets, size = targets_of(data.valid, len(classes))
        for guess in plain_classes(data.train, data.valid, data.valid, classes):
            scores = class_scores(confusion(targets, [k for (k,) in guess.labels], size))
            metrics = {f"valid_{name}": value for name, value in scores.items()}
            yield Baseline(guess.name, 1 - scores["accuracy"], metrics)

    def new_model(self, vocabs: Vocabs) -> SignalClassifier:
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.options.class_weights == "balanced" else None
        return SignalClassifier(self.width(vocabs), len(classes_of(labels)), self.options, weights)

    def training_step(
        self, model: SignalClassifier, batch: SignalBatch, state: tuple[Any, ...] | None, moment: Moment
    ) -> TrainingStep:
        logits = model(batch.x.to(model.device), batch.lengths)
        loss = model.loss(logits, batch.labels[:, 0].to(model.device))
        weight = weight_of(batch.labels[:, 0], model.class_weights)
        return TrainingStep(loss, len(batch.x), model.backend, weight=weight)

    def validate(self, model: SignalClassifier, data: SignalData) -> Validation:
        p = probabilities([model], data.valid)
        return validation(p.clamp_min(1e-30).log(), targets_of(data.valid, p.shape[1])[0])

    def sample(self, model: SignalClassifier, data: SignalData) -> str:
        few, classes = data.valid[:FEW], classes_of(data.vocabs["labels"])
        found = probabilities([model], few).argmax(-1).tolist()
        shown = [f"sequence {n}, {example.size} steps" for n, example in enumerate(few, 1)]
        return with_classes(shown, found, targets_of(few, len(classes))[0], classes)


def targets_of(examples: Sequence[Example], classes: int) -> tuple[list[int], int]:
    """Their classes, and how many there are: one more where some were not learned from, which count as errors."""
    targets = [classes if example.labels[0] == NO_LABEL else example.labels[0] for example in examples]
    return targets, classes + (classes in targets)


@torch.no_grad()
def probabilities(models: Sequence[SignalClassifier], examples: Sequence[Example]) -> Tensor:
    """(examples, classes): the mean over the models."""

    def run(batch: SignalBatch) -> Tensor:
        x = batch.x.to(models[0].device)
        return torch.stack([model(x, batch.lengths).softmax(-1) for model in models]).mean(0).cpu()

    return torch.stack(by_length(examples, run))


TASK = SignalClassify
