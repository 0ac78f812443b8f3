"""A class for every image by a network in two dimensions: a folder of folders, or an .npz."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recur.data.batching import Shuffled, in_order
from recur.models import GridClassifier
from recur.models.calibration import calibrated
from recur.runs import Vocabs
from recur.tasks.classes import class_weights, classes_of, label_vocab, plain_baselines, validation, weight_of
from recur.tasks.contract import Baseline, Moment, Task, TrainingStep, Validation
from recur.tasks.grid.data import (
    Example,
    ImageBatch,
    ImageData,
    encode,
    image_parts,
    note_of,
    shifted,
    statistics,
    with_parts,
)
from recur.tasks.grid.linear import plain_guesses
from recur.tasks.grid.options import GridOptions
from recur.tasks.watching import FEW, with_classes

ROWS = 64
"""Images measured as one batch."""

POINTS = 16
"""Along the longer side of the grid, at most, unless its user says how many pixels a point has."""


class GridTask(Task[GridOptions, ImageData, GridClassifier, ImageBatch]):
    name = "grid"
    curve = "valid_error"
    unit = "images"

    @classmethod
    def settle(cls, options: GridOptions) -> GridOptions:
        options = with_parts(options)
        train = image_parts(options)[0]
        if not options.pixel_mean:
            mean, deviation = statistics(train)
            options = options.changed(pixel_mean=mean, pixel_deviation=deviation)
        if options.patch is None:
            longer = options.size or max(max(image.pixels.shape[:2]) for image in train)
            options = options.changed(patch=-(-longer // POINTS))
        return super().settle(options)

    @property
    def architecture(self) -> str:
        return f"{self.options.compose} grid"

    def read(self, vocabs: Vocabs | None = None) -> ImageData:
        o = self.options
        train, valid, _ = image_parts(o)
        vocabs = vocabs or {"labels": label_vocab(str(image.label) for image in train)}
        whole = encode([*train, *valid], o, vocabs)
        return ImageData(vocabs, whole[: len(train)], whole[len(train) :], note_of(o))

    def describe(self, data: ImageData) -> str:
        (R, C, D), k = data.train[0].pixels.shape, self.options.patch or 1
        colour = "grey" if D == 1 else "colour"
        points = f"{-(-R // k)} × {-(-C // k)} points" + (f" of {k} × {k} pixels" if k > 1 else "")
        images = f"{len(data.train):,} images of {R} × {C} pixels, {colour}, to learn from{data.note}"
        return f"{images}: {points}, {len(classes_of(data.vocabs['labels']))} classes"

    def baselines(self, data: ImageData) -> list[Baseline]:
        """Among them a softmax of the pixels, which knows nothing of where they lie beside each other."""
        classes = classes_of(data.vocabs["labels"])
        guesses = plain_guesses(data.train, data.valid, self.options, classes)
        return plain_baselines(guesses, [example.label for example in data.valid], len(classes))

    def new_model(self, vocabs: Vocabs) -> GridClassifier:
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.options.class_weights == "balanced" else None
        return GridClassifier(len(self.options.pixel_mean), len(classes_of(labels)), self.options, weights)

    def batches(self, data: ImageData) -> Shuffled[Example, ImageBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, ImageBatch.of)

    def training_step(
        self, model: GridClassifier, batch: ImageBatch, state: tuple[Any, ...] | None, moment: Moment
    ) -> TrainingStep:
        device = model.output.bias.device
        images = batch.standardised(self.options, device)
        if self.options.shift:
            images = shifted(images, self.options.shift * model.patch)
        loss = model.loss(model(images), batch.classes.to(device))
        weight = weight_of(batch.classes, model.class_weights)
        return TrainingStep(loss, len(batch.classes), "diagonals", weight=weight)

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(classes_of(vocabs["labels"])), 3))

    def validate(self, model: GridClassifier, data: ImageData) -> Validation:
        targets = [example.label for example in data.valid]
        log_p = network_log_probabilities(model, data.valid, self.options)
        return validation(calibrated(model.temperature, [log_p], targets, model.class_weights), targets)

    def sample(self, model: GridClassifier, data: ImageData) -> str:
        few = data.valid[:FEW]
        found = network_log_probabilities(model, few, self.options).argmax(-1).tolist()
        shown = [f"image {n}" for n in range(1, len(few) + 1)]
        return with_classes(shown, found, [example.label for example in few], classes_of(data.vocabs["labels"]))


@torch.no_grad()
def network_log_probabilities(model: GridClassifier, examples: Sequence[Example], options: GridOptions) -> Tensor:
    """(examples, classes), before its temperature."""
    device = model.output.bias.device
    batches = (batch.standardised(options, device) for batch in in_order(examples, ROWS, ImageBatch.of))
    return torch.cat([model(images).log_softmax(-1).cpu() for images in batches])


def probabilities(models: Sequence[GridClassifier], examples: Sequence[Example], options: GridOptions) -> Tensor:
    """(examples, classes): the mean over the models."""
    found = [model.temperature(network_log_probabilities(model, examples, options)).exp() for model in models]
    return torch.stack(found).mean(0)


TASK = GridTask
