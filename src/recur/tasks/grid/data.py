"""From image files to standardised batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from recur.data.images import Image, Pixels, find_image_arrays, read_images, same_channels, split_name
from recur.errors import TextError
from recur.runs import Vocabs
from recur.tasks.classes import class_of, numbers_of
from recur.tasks.examples import split
from recur.tasks.grid.options import GridOptions

PAPER = 0.0
"""What comes in where a shifted image has no pixel: the mean of what was learned from."""


class Example(NamedTuple):
    pixels: Tensor
    """(R, C, D), in the numbers of the file."""
    label: int


@dataclass(frozen=True)
class ImageData:
    vocabs: Vocabs
    train: list[Example]
    valid: list[Example]
    note: str
    """Which arrays were taken."""


def with_parts(options: GridOptions) -> GridOptions:
    """Parts that an .npz has itself stand for those that are not named."""
    fields = {}
    for part in ("valid", "test"):
        names = [name for name in options.texts if split_name(name)[0] == name and name.endswith(".npz")]
        own = tuple(f"{name}:{part}" for name in names if part in find_image_arrays(name).parts)
        if own and not getattr(options, part):
            fields[part] = own
    return options.changed(**fields)


def image_parts(options: GridOptions) -> tuple[list[Image], list[Image], list[Image]]:
    """Training, validation and test; the last is empty where files hold it, which are not read here."""
    return split(options, read_images)


def note_of(options: GridOptions) -> str:
    """Which arrays an .npz gave."""
    found = [find_image_arrays(name) for name in options.texts if split_name(name)[0].endswith(".npz")]
    return f" (images {found[0].images}, labels {found[0].labels})" if found else ""


def statistics(images: Sequence[Image]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of every channel's pixels; colour, if some have it."""
    channels = max(image.pixels.shape[2] for image in images)
    count, total, squares = 0, np.zeros(channels), np.zeros(channels)
    for image in same_channels(images, channels):
        pixels = image.pixels.reshape(-1, channels).astype(np.float64)
        count, total, squares = count + len(pixels), total + pixels.sum(0), squares + (pixels**2).sum(0)
    mean = total / count
    spread = np.sqrt(np.maximum(squares / count - mean**2, 0))
    return tuple(mean.tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist())


def encode(images: Sequence[Image], options: GridOptions, vocabs: Vocabs | None) -> list[Example]:
    """With their classes; without vocabularies, class 0 for all."""
    classes = None if vocabs is None else numbers_of(vocabs["labels"])
    found: list[Example] = []
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
        label = 0 if classes is None else class_of(str(image.label), classes, image.where)
        found.append(Example(pixels, label))
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
    def of(cls, examples: Sequence[Example]) -> ImageBatch:
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
