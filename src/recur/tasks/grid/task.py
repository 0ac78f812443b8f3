"""Image classification by a network in two dimensions: batches, baselines and the task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from recur.baselines.classifiers import most_frequent, softmax_regression
from recur.data.batching import Shuffled, in_order
from recur.data.images import Image, Pixels, find_image_arrays, read_images, same_channels, split_name
from recur.errors import TextError
from recur.i18n import Message
from recur.models import GridClassifier
from recur.models.calibration import calibrate
from recur.runs import Vocabs
from recur.tasks.common.batching import FEW, class_examples
from recur.tasks.common.classification import (
    class_names,
    class_number,
    class_numbers,
    class_weights,
    label_vocab,
    score_baselines,
    total_weight,
    validate_classes,
)
from recur.tasks.common.contract import Baseline, Task, TrainingProgress, TrainingStep, Validation
from recur.tasks.common.splits import split
from recur.tasks.grid.options import GridOptions

PAPER = 0.0
"""What comes in where a shifted image has no pixel: the mean of what was learned from."""


class ImageExample(NamedTuple):
    pixels: Tensor
    """(R, C, D), in the numbers of the file."""
    label: int


@dataclass(frozen=True)
class ImageData:
    vocabs: Vocabs
    train: list[ImageExample]
    valid: list[ImageExample]
    note: str
    """Which arrays were taken."""


def with_parts(options: GridOptions) -> GridOptions:
    """Return options in which sets inside an .npz replace those that are not named."""
    fields = {}
    for part in ("valid", "test"):
        names = [name for name in options.texts if split_name(name)[0] == name and name.endswith(".npz")]
        own = tuple(f"{name}:{part}" for name in names if part in find_image_arrays(name).parts)
        if own and not options.paths(part):
            fields[part] = own
    return options.changed(**fields)


def image_parts(options: GridOptions) -> tuple[list[Image], list[Image], list[Image]]:
    """Return the training, validation and test sets; the test set is empty if it is in files."""
    return split(options, read_images)


def note_of(options: GridOptions) -> str:
    """Which arrays an .npz gave."""
    found = [find_image_arrays(name) for name in options.texts if split_name(name)[0].endswith(".npz")]
    return f" (images {found[0].images}, labels {found[0].labels})" if found else ""


def statistics(images: Sequence[Image]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and deviation of every channel."""
    channels = max(image.pixels.shape[2] for image in images)
    count, total, squares = 0, np.zeros(channels), np.zeros(channels)
    for image in same_channels(images, channels):
        pixels = image.pixels.reshape(-1, channels).astype(np.float64)
        count, total, squares = count + len(pixels), total + pixels.sum(0), squares + (pixels**2).sum(0)
    mean = total / count
    spread = np.sqrt(np.maximum(squares / count - mean**2, 0))
    return tuple(mean.tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist())


def encode(images: Sequence[Image], options: GridOptions, vocabs: Vocabs | None) -> list[ImageExample]:
    """With their classes; without vocabularies, class 0 for all."""
    classes = None if vocabs is None else class_numbers(vocabs["labels"])
    found: list[ImageExample] = []
    sizes: dict[tuple[int, int], str] = {}
    for image in same_channels(images, len(options.pixel_mean)):
        pixels = torch.from_numpy(_plain(image.pixels))
        if options.size is not None and pixels.shape[:2] != (options.size, options.size):
            pixels = scaled(pixels, options.size)
        sizes.setdefault((pixels.shape[0], pixels.shape[1]), image.where)
        if len(sizes) > 1:
            (a, one), (b, other) = sizes.items()
            named = f"{one} has {a[0]} × {a[1]} pixels, and {other} {b[0]} × {b[1]}"
            raise TextError(f"{named}; --size {max(a)} scales all to one size")
        label = 0 if classes is None else class_number(str(image.label), classes, image.where)
        found.append(ImageExample(pixels, label))
    return found


def _plain(pixels: Pixels) -> Pixels:
    """A copy in a type that torch has: bytes stay bytes, all else becomes float32."""
    return np.array(pixels, np.uint8 if pixels.dtype == np.uint8 else np.float32, order="C")


def scaled(pixels: Tensor, size: int) -> Tensor:
    planes = pixels.permute(2, 0, 1)[None].float()
    return interpolate(planes, (size, size), mode="bilinear", antialias=True)[0].permute(1, 2, 0).contiguous()


class ImageBatch(NamedTuple):
    images: Tensor
    """(B, R, C, D), in the numbers of the files."""
    classes: Tensor

    @classmethod
    def of(cls, examples: Sequence[ImageExample]) -> ImageBatch:
        return cls(torch.stack([e.pixels for e in examples]), torch.tensor([e.label for e in examples]))

    def standardised(self, options: GridOptions, device: torch.device) -> Tensor:
        mean, deviation = (
            torch.tensor(numbers, device=device) for numbers in (options.pixel_mean, options.pixel_deviation)
        )
        return (self.images.to(device).float() - mean) / deviation


def shifted(images: Tensor, most: int) -> Tensor:
    """Each by up to so many pixels down and across."""
    B, R, C, D = images.shape
    wide = images.new_full((B, R + 2 * most, C + 2 * most, D), PAPER)
    wide[:, most : most + R, most : most + C] = images
    down, across = (torch.randint(0, 2 * most + 1, (2, B, 1))).to(images.device)
    rows, columns = down + torch.arange(R, device=images.device), across + torch.arange(C, device=images.device)
    return wide[torch.arange(B, device=images.device)[:, None, None], rows[:, :, None], columns[:, None]]


MOST = 10_000
"""Images that the softmax is fitted to."""


def image_baselines(
    train: Sequence[ImageExample], measured: Sequence[ImageExample], options: GridOptions, classes: Sequence[str]
) -> dict[str, list[int]]:
    """Return the classes that each baseline predicts, by name."""
    always = most_frequent([example.label for example in train])
    return {
        Message("always {answer}", answer=classes[always]): [always] * len(measured),
        "nearest mean of a class": nearest_mean(train, measured, options, len(classes)),
        "softmax of the pixels": softmax_of_pixels(train, measured, options, len(classes)),
    }


def pixels_of(examples: Sequence[ImageExample], options: GridOptions) -> tuple[Tensor, Tensor]:
    """Return the standardised pixels (n, pixels) and the classes (n,)."""
    batch = ImageBatch.of(examples)
    return batch.standardised(options, torch.device("cpu")).flatten(1), batch.classes


def softmax_of_pixels(
    train: Sequence[ImageExample], measured: Sequence[ImageExample], options: GridOptions, K: int
) -> list[int]:
    """Return the classes predicted by a softmax regression of the pixels."""
    x, y = pixels_of(train[:: -(-len(train) // MOST)], options)
    found: list[int] = softmax_regression(x, y, K, pixels_of(measured, options)[0]).argmax(-1).tolist()
    return found


def nearest_mean(
    train: Sequence[ImageExample], measured: Sequence[ImageExample], options: GridOptions, K: int
) -> list[int]:
    x, y = pixels_of(train, options)
    sums = torch.zeros(K, x.shape[1]).index_add(0, y, x)
    means = sums / y.bincount(minlength=K).clamp(min=1)[:, None]
    found: list[int] = torch.cdist(pixels_of(measured, options)[0], means).argmin(-1).tolist()
    return found


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
        vocabs = vocabs or {"labels": label_vocab((str(image.label) for image in train), 2)}
        whole = encode([*train, *valid], o, vocabs)
        return ImageData(vocabs, whole[: len(train)], whole[len(train) :], note_of(o))

    def describe(self, data: ImageData) -> str:
        (R, C, D), k = data.train[0].pixels.shape, self.options.patch or 1
        colour = "grey" if D == 1 else "colour"
        points = f"{-(-R // k)} × {-(-C // k)} points" + (f" of {k} × {k} pixels" if k > 1 else "")
        images = f"{len(data.train):,} images of {R} × {C} pixels, {colour}, for training{data.note}"
        return f"{images}: {points}, {len(class_names(data.vocabs['labels']))} classes"

    def baselines(self, data: ImageData) -> list[Baseline]:
        """Among them a softmax of the pixels, which knows nothing of where they lie beside each other."""
        classes = class_names(data.vocabs["labels"])
        guesses = image_baselines(data.train, data.valid, self.options, classes)
        return score_baselines(guesses, [example.label for example in data.valid], len(classes))

    def new_model(self, vocabs: Vocabs) -> GridClassifier:
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.options.class_weights == "balanced" else None
        return GridClassifier(len(self.options.pixel_mean), len(class_names(labels)), self.options, weights)

    def batches(self, data: ImageData) -> Shuffled[ImageExample, ImageBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, ImageBatch.of)

    def training_step(
        self, model: GridClassifier, batch: ImageBatch, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        device = model.output.bias.device
        images = batch.standardised(self.options, device)
        if self.options.shift:
            images = shifted(images, self.options.shift * model.patch)
        loss = model.loss(model(images), batch.classes.to(device))
        weight = total_weight(batch.classes, model.class_weights)
        return TrainingStep(loss, len(batch.classes), "diagonals", weight=weight)

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(class_names(vocabs["labels"])), 3))

    def validate(self, model: GridClassifier, data: ImageData) -> Validation:
        targets = [example.label for example in data.valid]
        log_p = network_log_probabilities(model, data.valid, self.options)
        return validate_classes(calibrate(model.temperature, [log_p], targets, model.class_weights), targets)

    def sample(self, model: GridClassifier, data: ImageData) -> str:
        few = data.valid[:FEW]
        found = network_log_probabilities(model, few, self.options).argmax(-1).tolist()
        shown = [f"image {n}" for n in range(1, len(few) + 1)]
        return class_examples(shown, found, [example.label for example in few], class_names(data.vocabs["labels"]))


@torch.no_grad()
def network_log_probabilities(model: GridClassifier, examples: Sequence[ImageExample], options: GridOptions) -> Tensor:
    """Return log-probabilities (examples, classes) without the temperature."""
    device = model.output.bias.device
    batches = (batch.standardised(options, device) for batch in in_order(examples, ROWS, ImageBatch.of))
    return torch.cat([model(images).log_softmax(-1).cpu() for images in batches])


def probabilities(models: Sequence[GridClassifier], examples: Sequence[ImageExample], options: GridOptions) -> Tensor:
    """Return the probabilities (examples, classes): the mean over the models."""
    found = [model.temperature(network_log_probabilities(model, examples, options)).exp() for model in models]
    return torch.stack(found).mean(0)


TASK = GridTask
