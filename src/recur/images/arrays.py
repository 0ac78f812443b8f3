"""Which arrays of an .npz are the images and which their labels.

Images are the array with three axes or four: (n, rows, columns), with colours last or behind n. Labels are the array
with one axis (or n × 1), of whole numbers or of text, that is as long. A file may hold parts: x_train, y_train, x_test,
y_test and so on; FILE.npz:test names one.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recur.errors import TextError

PARTS = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
"""How the names of a part's arrays end or begin."""


class Arrays(NamedTuple):
    images: str
    """The name of the array of images."""
    labels: str | None
    """That of their labels, if there is one."""
    shape: tuple[int, ...]
    parts: tuple[str, ...]
    """The parts that the file has, none if it is whole."""


def split_name(name: str) -> tuple[str, str]:
    """FILE.npz:test as its file and its part, `train` where none is named."""
    path, colon, part = name.rpartition(":")
    if colon and path.endswith(".npz") and part in PARTS:
        return path, part
    return name, "train"


def find_arrays(name: str) -> Arrays:
    """What an .npz holds, or one part of it; from the headers of its arrays alone."""
    path, part = split_name(name)
    shapes = _headers(path)
    parts = tuple(p for p in PARTS if any(_part_of(array) == p and len(s[0]) > 2 for array, s in shapes.items()))
    if parts and part not in parts:
        raise TextError(f"{path} has no part {part}; it has {', '.join(parts)}")
    own = {array: shape for array, shape in shapes.items() if not parts or _part_of(array) == part}
    listed = ", ".join(f"{array} {shape}" for array, (shape, _) in own.items()) or "nothing"
    images = [array for array, (shape, kind) in own.items() if len(shape) in (3, 4) and kind in "uifb"]
    if len(images) != 1:
        many = "several arrays that could be images" if images else "no array of images (n, rows, columns)"
        raise TextError(f"{path} has {many}: {listed}")
    shape = own[images[0]][0]
    labels = [array for array, (s, kind) in own.items() if s in (shape[:1], (shape[0], 1)) and kind in "uibUS"]
    if len(labels) > 1:
        raise TextError(f"{path} has several arrays that could be labels of {images[0]}: {listed}")
    return Arrays(images[0], labels[0] if labels else None, shape, parts)


def _part_of(array: str) -> str | None:
    words = array.lower().replace("-", "_").split("_")
    return next((part for part, names in PARTS.items() if {words[0], words[-1]} & set(names)), None)


def _headers(path: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape of every array, and the letter of its kind."""
    if not Path(path).exists():
        raise TextError(f"no file {path!r}")
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as stream:
                    version = np.lib.format.read_magic(stream)
                    read: Any = np.lib.format.read_array_header_1_0
                    if version > (1, 0):
                        read = np.lib.format.read_array_header_2_0
                    shape, _, dtype = read(stream)
                    found[name.removesuffix(".npy")] = shape, dtype.kind
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise TextError(f"{path} cannot be read as an .npz: {error}") from None
    return found
