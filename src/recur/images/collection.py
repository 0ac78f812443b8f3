"""Images with their labels: a folder with a folder for each class, or an .npz.

Every image keeps where it came from, for messages and for who asks what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recur.errors import TextError, shown
from recur.files import too_long
from recur.images.arrays import find_arrays, read_arrays, reading, split_name
from recur.images.files import SUFFIXES, Pixels, check_values, read_image

COLOURS = (1, 3)


class Image(NamedTuple):
    pixels: Pixels
    label: str | None
    where: str


def is_image_folder(folder: Path) -> bool:
    """Whether it has two folders or more, and nothing but images in them."""
    inner = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return len(inner) > 1 and all(map(_holds_images, inner))


def _holds_images(folder: Path) -> bool:
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return bool(files) and all(path.is_file() and path.suffix.lower() in SUFFIXES for path in files)


def image_files(folder: Path) -> list[Path]:
    """All images below a folder, in the order of their names."""
    return [p for p in sorted(folder.rglob("*")) if p.suffix.lower() in SUFFIXES and p.is_file()]


def read_images(names: Sequence[str], labelled: bool = True) -> list[Image]:
    """All images of folders, files and .npz; unless `labelled` is false, each has its label."""
    found = [image for name in names for image in _read(str(name), labelled)]
    if not found:
        raise TextError(f"{', '.join(names)} holds no image; a folder has one folder of images for each class")
    return found


def _read(name: str, labelled: bool) -> list[Image]:
    if split_name(name)[0].endswith(".npz"):
        return _read_arrays(name, labelled)
    path = Path(name)
    if "\0" in name or too_long(name) or not path.exists():
        raise TextError(f"no file {shown(name)}")
    if path.is_dir():
        inner = [image for image in image_files(path) if image.parent != path]
        if labelled or inner:
            return [Image(read_image(image), image.relative_to(path).parts[0], str(image)) for image in inner]
        return [Image(read_image(image), None, str(image)) for image in image_files(path)]
    if labelled:
        raise TextError(
            f"{name} has no labels; a folder has one folder of images for each class, an .npz an array of them"
        )
    return [Image(read_image(path), None, name)]


def _read_arrays(name: str, labelled: bool) -> list[Image]:
    (path, _), arrays = split_name(name), find_arrays(name)
    if labelled and arrays.labels is None:
        raise TextError(
            f"{path} has no labels: no array of {arrays.shape[0]} whole numbers or texts beside {arrays.images}"
        )
    images, *rest = read_arrays(path, arrays.images, *filter(None, [arrays.labels]))
    with reading(path, "an .npz"):
        labels = rest[0].reshape(-1).astype(str).tolist() if rest else None
    pixels = _colours_last(images, f"{path}: {arrays.images}")
    check_values(pixels, f"{path}: {arrays.images}")
    return [Image(one, None if labels is None else labels[k], f"{name}[{k}]") for k, one in enumerate(pixels)]


def _colours_last(images: np.ndarray[Any, Any], where: str) -> np.ndarray[Any, Any]:
    """(n, R, C, D)"""
    if images.ndim == 3:
        return images[..., None]
    if images.shape[-1] in COLOURS:
        return images
    if images.shape[1] in COLOURS:
        return images.transpose(0, 2, 3, 1)
    raise TextError(f"{where} is {images.shape}: no axis of 1 or 3 colours, last or behind the first")


def same_channels(images: Sequence[Image], channels: int) -> list[Image]:
    """All with so many channels: grey becomes red, green and blue alike; colour does not become grey."""
    found = []
    for image in images:
        own = image.pixels.shape[2]
        if own > channels:
            raise TextError(f"{image.where} has colours, and this model learned from grey images")
        pixels: Any = image.pixels if own == channels else image.pixels.repeat(channels, axis=2)
        found.append(image._replace(pixels=pixels))
    return found
