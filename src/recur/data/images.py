"""Images from folders, image files and .npz archives.

In an .npz, the images are the array with three or four axes, (n, rows, columns) with channels last or after n. The
labels are the array of integers or text with one axis (or n × 1) and the same length. A file may hold parts: x_train,
y_train, x_test, y_test and so on; FILE.npz:test names one.
"""

from __future__ import annotations

import io
import math
import os
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from recur.data.reading import Reading, kept
from recur.errors import OptionError, RecurError, TextError, listed, shown
from recur.utils.files import memory, open_stream, read_bounded, too_long
from recur.utils.limits import (
    IMAGE_BYTES,
    IMAGE_PIXELS,
    JPEG_SCANS,
    NPZ_ARRAYS,
    NPZ_BYTES,
    NPZ_RATIO,
    check_count,
    most_items,
)

__all__ = [
    "IMAGE_SUFFIXES",
    "Image",
    "ImageArrays",
    "Pixels",
    "find_image_arrays",
    "image_files",
    "is_image_folder",
    "read_image",
    "read_images",
    "same_channels",
    "split_name",
]


SPLIT_NAMES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
"""Prefixes and suffixes of the array names of each part."""


Headers = dict[str, tuple[tuple[int, ...], str]]
"""Shape and dtype kind of arrays by name."""


class ImageArrays(NamedTuple):
    images: str
    """Name of the array of images."""
    labels: str | None
    """Name of the array of labels, if there is one."""
    shape: tuple[int, ...]
    parts: tuple[str, ...]
    """Names of the parts in the file; empty if it has none."""


def split_name(name: str) -> tuple[str, str]:
    """Split FILE.npz:test into its file and its part; the default part is `train`."""
    path, colon, part = name.rpartition(":")
    if colon and path.endswith(".npz") and part in SPLIT_NAMES:
        return path, part
    return name, "train"


def find_image_arrays(name: str) -> ImageArrays:
    """Return the arrays of images and labels of an .npz, or of one part; reads only array headers."""
    path, own, parts = read_part_headers(name, least_axes=3)
    named = listed([f"{array} {shape}" for array, (shape, _) in own.items()]) or "nothing"
    images = [array for array, (shape, kind) in own.items() if len(shape) in (3, 4) and kind in "uifb"]
    if len(images) != 1:
        many = "several arrays that could be images" if images else "no array of images (n, rows, columns)"
        raise TextError(f"{path} has {many}: {named}")
    shape = own[images[0]][0]
    if 0 in shape:
        raise TextError(f"{path}: {images[0]} is {shape}: no pixel at all")
    check_items(path, "images", shape[0])
    labels = [array for array, (s, kind) in own.items() if s in (shape[:1], (shape[0], 1)) and kind in "uibUS"]
    if len(labels) > 1:
        raise TextError(f"{path} has several arrays that could be labels of {images[0]}: {named}")
    return ImageArrays(images[0], labels[0] if labels else None, shape, parts)


def read_part_headers(name: str, least_axes: int) -> tuple[str, Headers, tuple[str, ...]]:
    """Return the path of FILE.npz or FILE.npz:part, the array headers of the part, and the names of all parts.

    A part is recognised by an array of at least `least_axes` axes.
    """
    path, part = split_name(name)
    headers = read_npz_headers(path)
    parts = tuple(
        p for p in SPLIT_NAMES if any(part_of(array) == p and len(s) >= least_axes for array, (s, _) in headers.items())
    )
    if parts and part not in parts:
        raise TextError(f"{path} has no part {part}; it has {', '.join(parts)}")
    return path, {array: head for array, head in headers.items() if not parts or part_of(array) == part}, parts


def part_of(array: str) -> str | None:
    words = array.lower().replace("-", "_").split("_")
    return next((part for part, names in SPLIT_NAMES.items() if {words[0], words[-1]} & set(names)), None)


def read_npz_headers(path: str) -> Headers:
    """Return the shape and dtype kind of every array."""
    found: Headers = {}
    with reading_file(path, "an .npz"), open_stream(path) as stream, zipfile.ZipFile(stream) as archive:
        size, entries = os.path.getsize(path), archive.infolist()
        check_count(path, "arrays", len(entries), NPZ_ARRAYS, "save one array of all images or sequences")
        for entry in entries:
            if entry.filename.endswith(".npy"):
                with archive.open(entry) as packed:
                    shape, dtype = read_header(packed, entry.file_size)
                # An archive may claim any compressed size, but it has no more bytes than its file.
                if entry.file_size > NPZ_RATIO * min(entry.compress_size, size) + NPZ_BYTES:
                    raise TextError(
                        f"{path} unpacks to more than {NPZ_RATIO} times its size, as no data does; "
                        "save it without compression: numpy.savez"
                    )
                found[entry.filename.removesuffix(".npy")] = shape, dtype.kind
    return found


def check_items(path: str, what: str, count: int) -> None:
    """Raise TextError if an archive claims more images or sequences than its size allows."""
    check_count(path, what, count, most_items(os.path.getsize(path)), "take fewer, or save it without compression")


def read_arrays(path: str, *names: str) -> list[np.ndarray[Any, Any]]:
    """Return arrays of an .npz by name."""
    with reading_file(path, "an .npz"), open_stream(path) as stream, zipfile.ZipFile(stream) as archive:
        found = []
        for name in names:
            with archive.open(f"{name}.npy") as packed:
                found.append(np.lib.format.read_array(packed, allow_pickle=False))
        return found


def read_header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype in the header of an array of `size` bytes; raise if they cannot be true."""
    version = np.lib.format.read_magic(stream)
    read: Any = np.lib.format.read_array_header_1_0
    if version > (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if any(n < 0 for n in shape) or not dtype.itemsize or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"an array of {size} bytes cannot be {dtype} of {shape}")
    return shape, dtype


def parse_npy(content: bytes) -> np.ndarray[Any, Any]:
    """Return the array of an .npy file, after checking its header."""
    stream = io.BytesIO(content)
    read_header(stream, len(content))
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


@contextmanager
def reading_file(path: Path | str, what: str) -> Iterator[None]:
    """Convert exceptions of file readers into TextError with the name of the file."""
    try:
        yield
    except RecurError:
        raise
    except FileNotFoundError:
        raise TextError(f"no file {str(path)!r}") from None
    except Exception as error:
        why = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise TextError(f"{path} cannot be read as {what}: {why or type(error).__name__}") from None


Pixels = np.ndarray[tuple[int, int, int], np.dtype[Any]]
"""Array of shape (R, C, D)."""

MAX_ABSOLUTE_VALUE = 1e30
"""Largest absolute value that is accepted in images and signals."""

IMAGE_SUFFIXES = (".pgm", ".ppm", ".npy", ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
"""Pillow decoders that may be used."""

DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")
GREY = ("1", "L", "LA")
COLOUR = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
"""Pillow modes: grey with more than 8 bits, which keeps its values; other grey; and colour."""


def read_image(path: Path | str) -> Pixels:
    path = Path(path)
    with reading_file(path, "an image"):
        content = read_bounded(path, IMAGE_BYTES)
        if path.suffix.lower() == ".npy":
            return as_pixels(parse_npy(content), str(path))
        if path.suffix.lower() in (".pgm", ".ppm"):
            return _netpbm(content, str(path))
        return _by_pillow(io.BytesIO(content), path)


def as_pixels(array: np.ndarray[Any, Any], where: str) -> Pixels:
    """Return (R, C) or (R, C, D) as (R, C, D)."""
    found = array[..., None] if array.ndim == 2 else array
    if found.ndim != 3 or 0 in found.shape or found.shape[2] not in (1, 3) or found.dtype.kind not in "uifb":
        raise TextError(
            f"{where} is not an image: expected numbers (rows, columns) or (rows, columns, 3), got {array.shape}"
        )
    check_values(found, where)
    return found


def check_values(pixels: np.ndarray[Any, Any], where: str) -> None:
    """Raise TextError if a value is not finite or too large."""
    if pixels.dtype.kind == "f" and not (np.abs(pixels) < MAX_ABSOLUTE_VALUE).all():
        raise TextError(f"{where} has values that are not finite, or beyond {MAX_ABSOLUTE_VALUE:g}")


_SPACE, _NUMBER = rb"(?:\s|#[^\n]*\n)+", rb"(\d{1,9})"
_HEADER = re.compile(rb"(P[2356])" + _SPACE + _NUMBER + _SPACE + _NUMBER + _SPACE + _NUMBER + rb"\s")


def _netpbm(data: bytes, where: str) -> Pixels:
    """Decode a Netpbm image: grey (P2, P5) or colour (P3, P6), as text (P2, P3) or as one or two bytes per value."""
    head = _HEADER.match(data)
    if head is None:
        raise TextError(
            f"{where} is no image: a .pgm or .ppm begins with P2, P3, P5 or P6, its width, height and maximum"
        )
    kind, columns, rows, most = head[1], int(head[2]), int(head[3]), int(head[4])
    D = 3 if kind in (b"P3", b"P6") else 1
    _check_pixels(where, columns, rows)
    if kind in (b"P2", b"P3"):
        values = _numbers(re.sub(rb"#[^\n]*", b"", data[head.end() :]))
    else:
        kind_of = np.dtype(">u2" if most > 255 else np.uint8)
        behind = data[head.end() :]
        values = np.frombuffer(behind[: len(behind) // kind_of.itemsize * kind_of.itemsize], kind_of)
    if len(values) < rows * columns * D or not rows * columns:
        raise TextError(f"{where} says {rows} × {columns} pixels, and has {len(values) // D}")
    found: Pixels = values[: rows * columns * D].reshape(rows, columns, D)
    return found


def _numbers(text: bytes) -> np.ndarray[Any, Any]:
    """Parse integers separated by white space without creating Python objects; too large numbers are clipped."""
    if re.search(rb"[^0-9\s]", text):
        raise ValueError("expected whole numbers between white space")
    return np.fromstring(text, np.float64, sep=" ").clip(max=2.0**62).astype(np.int64)


def _check_pixels(where: str, columns: int, rows: int) -> None:
    check_count(where, "pixels", columns * rows, IMAGE_PIXELS, f"scale the image ({columns} × {rows}) down")


def _by_pillow(content: io.BytesIO, path: Path) -> Pixels:
    try:
        from PIL import Image
    except ImportError:
        raise OptionError(
            f"{path} needs Pillow, which is not installed: pip install 'recur[image]'; .pgm, .ppm and .npy do without"
        ) from None
    with warnings.catch_warnings(), Image.open(content, formats=FORMATS) as image:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the next line has a limit of its own
        _check_pixels(str(path), image.width, image.height)
        if image.format in ("JPEG", "MPO"):
            scans = content.getvalue().count(b"\xff\xda")
            check_count(str(path), "scans", scans, JPEG_SCANS, "save it as a baseline JPEG or as a PNG")
        if image.mode in DEEP:
            deep = np.asarray(image)
            return as_pixels(deep.astype(deep.dtype.newbyteorder("=")), str(path))
        if image.mode not in GREY + COLOUR:
            raise TextError(
                f"{path}: expected a grey or colour image ({', '.join(DEEP + GREY + COLOUR)}), got the mode "
                f"{image.mode}; save it as a PNG with 8 bits per channel"
            )
        return as_pixels(np.asarray(image.convert("L" if image.mode in GREY else "RGB")), str(path))


COLOURS = (1, 3)


class Image(NamedTuple):
    pixels: Pixels
    label: str | None
    where: str


def is_image_folder(folder: Path) -> bool:
    """Return True if the folder has two or more folders with nothing but images in them."""
    inner = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return len(inner) > 1 and all(map(_holds_images, inner))


def _holds_images(folder: Path) -> bool:
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return bool(files) and all(path.is_file() and path.suffix.lower() in IMAGE_SUFFIXES for path in files)


def image_files(folder: Path) -> list[Path]:
    """Return all images below a folder, sorted by name."""
    return [p for p in sorted(folder.rglob("*")) if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file()]


def read_images(names: Sequence[str], labelled: bool = True, reading: Reading | None = None) -> list[Image]:
    """Return all images of folders, files and .npz; with `labelled`, raise if one has no label."""
    reading = reading or Reading()
    found, taken = [], 0
    for image in (image for name in names for image in _read(str(name), labelled, reading)):
        found.append(image)
        taken += image.pixels.nbytes
        if taken > memory() / 2:
            raise TextError(f"{image.where}: the images take more than half of this machine's memory; take fewer")
    if not found:
        raise TextError(f"{', '.join(names)} holds no image; a folder has one folder of images for each class")
    reading.check_share(len(found), ", ".join(names))
    return found


def _read(name: str, labelled: bool, reading: Reading) -> Iterable[Image]:
    if split_name(name)[0].endswith(".npz"):
        return _read_arrays(name, labelled)
    path = Path(name)
    if "\0" in name or too_long(name) or not path.exists():
        raise TextError(f"no file {shown(name)}")
    if path.is_dir():
        inner = [image for image in image_files(path) if image.parent != path]
        if labelled or inner:
            return kept(inner, lambda p: Image(read_image(p), p.relative_to(path).parts[0], str(p)), reading)
        return kept(image_files(path), lambda p: Image(read_image(p), None, str(p)), reading)
    if labelled:
        raise TextError(
            f"{name} has no labels; a folder has one folder of images for each class, an .npz an array of them"
        )
    return [Image(read_image(path), None, name)]


def _read_arrays(name: str, labelled: bool) -> list[Image]:
    (path, _), arrays = split_name(name), find_image_arrays(name)
    if labelled and arrays.labels is None:
        raise TextError(
            f"{path} has no labels: no array of {arrays.shape[0]} whole numbers or texts beside {arrays.images}"
        )
    images, *rest = read_arrays(path, arrays.images, *filter(None, [arrays.labels]))
    with reading_file(path, "an .npz"):
        labels = rest[0].reshape(-1).astype(str).tolist() if rest else None
    pixels = _colours_last(images, f"{path}: {arrays.images}")
    check_values(pixels, f"{path}: {arrays.images}")
    return [Image(one, None if labels is None else labels[k], f"{name}[{k}]") for k, one in enumerate(pixels)]


def _colours_last(images: np.ndarray[Any, Any], where: str) -> np.ndarray[Any, Any]:
    """Return images as (n, R, C, D)."""
    if images.ndim == 3:
        return images[..., None]
    if images.shape[-1] in COLOURS:
        return images
    if images.shape[1] in COLOURS:
        return images.transpose(0, 2, 3, 1)
    raise TextError(f"{where} is {images.shape}: no axis of 1 or 3 colours, last or behind the first")


def same_channels(images: Sequence[Image], channels: int) -> list[Image]:
    """Return images with this number of channels: grey is repeated as red, green and blue; colour is not reduced."""
    found = []
    for image in images:
        own = image.pixels.shape[2]
        if own > channels:
            raise TextError(f"{image.where} has colours, and this model was trained on grey images")
        pixels: Any = image.pixels if own == channels else image.pixels.repeat(channels, axis=2)
        found.append(image._replace(pixels=pixels))
    return found
