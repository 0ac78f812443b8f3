"""Which arrays of an .npz are the images and which their labels.

Images are the array with three axes or four: (n, rows, columns), with colours last or behind n. Labels are the array
with one axis (or n × 1), of whole numbers or of text, that is as long. A file may hold parts: x_train, y_train, x_test,
y_test and so on; FILE.npz:test names one.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from recur.errors import RecurError, TextError, listed
from recur.files import open_stream

RATIO, UNPACKED = 100, 1 << 28
"""An array unpacks to at most so many times its size in the archive and so many bytes more."""

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
    shapes = headers(path)
    parts = tuple(p for p in PARTS if any(part_of(array) == p and len(s[0]) > 2 for array, s in shapes.items()))
    if parts and part not in parts:
        raise TextError(f"{path} has no part {part}; it has {', '.join(parts)}")
    own = {array: shape for array, shape in shapes.items() if not parts or part_of(array) == part}
    named = listed([f"{array} {shape}" for array, (shape, _) in own.items()]) or "nothing"
    images = [array for array, (shape, kind) in own.items() if len(shape) in (3, 4) and kind in "uifb"]
    if len(images) != 1:
        many = "several arrays that could be images" if images else "no array of images (n, rows, columns)"
        raise TextError(f"{path} has {many}: {named}")
    shape = own[images[0]][0]
    if 0 in shape:
        raise TextError(f"{path}: {images[0]} is {shape}: no pixel at all")
    labels = [array for array, (s, kind) in own.items() if s in (shape[:1], (shape[0], 1)) and kind in "uibUS"]
    if len(labels) > 1:
        raise TextError(f"{path} has several arrays that could be labels of {images[0]}: {named}")
    return Arrays(images[0], labels[0] if labels else None, shape, parts)


def part_of(array: str) -> str | None:
    words = array.lower().replace("-", "_").split("_")
    return next((part for part, names in PARTS.items() if {words[0], words[-1]} & set(names)), None)


def headers(path: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape of every array, and the letter of its kind."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    with reading(path, "an .npz"), open_stream(path) as stream, zipfile.ZipFile(stream) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith(".npy"):
                with archive.open(entry) as packed:
                    shape, dtype = read_header(packed, entry.file_size)
                if entry.file_size > RATIO * entry.compress_size + UNPACKED:
                    raise TextError(f"{path} unpacks to more than {RATIO} times its size, as no images do")
                found[entry.filename.removesuffix(".npy")] = shape, dtype.kind
    return found


def read_arrays(path: str, *names: str) -> list[np.ndarray[Any, Any]]:
    """Arrays of an .npz, by name."""
    with reading(path, "an .npz"), open_stream(path) as stream, zipfile.ZipFile(stream) as archive:
        found = []
        for name in names:
            with archive.open(f"{name}.npy") as packed:
                found.append(np.lib.format.read_array(packed, allow_pickle=False))
        return found


def read_header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type that an array of so many bytes says it has, which it must be able to have."""
    version = np.lib.format.read_magic(stream)
    read: Any = np.lib.format.read_array_header_1_0
    if version > (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if any(n < 0 for n in shape) or not dtype.itemsize or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"an array of {size} bytes cannot be {dtype} of {shape}")
    return shape, dtype


@contextmanager
def reading(path: Path | str, what: str) -> Iterator[None]:
    """Whatever other programs' readers make of a file that is not what its name says, as one of our errors."""
    try:
        yield
    except RecurError:
        raise
    except FileNotFoundError:
        raise TextError(f"no file {str(path)!r}") from None
    except Exception as error:
        why = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise TextError(f"{path} cannot be read as {what}: {why or type(error).__name__}") from None
