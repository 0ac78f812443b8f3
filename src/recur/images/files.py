"""One image from a file: pixels (R, C, D), D 1 for grey and 3 for colour, in the numbers that the file has.

.npy and the Netpbm formats (.pgm and .ppm, as text or as bytes) are read here; .png, .jpg, .bmp and others by Pillow.
"""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from recur.errors import OptionError, TextError
from recur.files import read_bounded
from recur.images.arrays import read_header, reading

Pixels = np.ndarray[tuple[int, int, int], np.dtype[Any]]
"""(R, C, D)"""

LARGEST, MOST_PIXELS, BRIGHTEST = 1 << 28, 1 << 26, 1e30
"""Bytes of a file, pixels of an image and the value of a pixel at most."""

SUFFIXES = (".pgm", ".ppm", ".npy", ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def read_image(path: Path | str) -> Pixels:
    path = Path(path)
    with reading(path, "an image"):
        content = io.BytesIO(read_bounded(path, LARGEST))
        if path.suffix.lower() == ".npy":
            read_header(content, len(content.getbuffer()))
            content.seek(0)
            return as_pixels(np.lib.format.read_array(content, allow_pickle=False), str(path))
        if path.suffix.lower() in (".pgm", ".ppm"):
            return _netpbm(content.getvalue(), str(path))
        return _by_pillow(content, path)


def as_pixels(array: np.ndarray[Any, Any], where: str) -> Pixels:
    """(R, C) or (R, C, D) as (R, C, D)."""
    found = array[..., None] if array.ndim == 2 else array
    if found.ndim != 3 or 0 in found.shape or found.shape[2] not in (1, 3) or found.dtype.kind not in "uifb":
        raise TextError(f"{where} is no image: (rows, columns) or (rows, columns, 3) of numbers, got {array.shape}")
    check_values(found, where)
    return found


def check_values(pixels: np.ndarray[Any, Any], where: str) -> None:
    if pixels.dtype.kind == "f" and not (np.abs(pixels) < BRIGHTEST).all():
        raise TextError(f"{where} has values that are not finite, or beyond {BRIGHTEST:g}")


_SPACE, _NUMBER = rb"(?:\s|#[^\n]*\n)+", rb"(\d{1,9})"
_HEADER = re.compile(rb"(P[2356])" + _SPACE + _NUMBER + _SPACE + _NUMBER + _SPACE + _NUMBER + rb"\s")


def _netpbm(data: bytes, where: str) -> Pixels:
    """Grey (P2, P5) or colour (P3, P6), as text (P2, P3) or as bytes, two of them where the largest value needs it."""
    head = _HEADER.match(data)
    if head is None:
        raise TextError(
            f"{where} is no image: a .pgm or .ppm begins with P2, P3, P5 or P6, its width, height and maximum"
        )
    kind, columns, rows, most = head[1], int(head[2]), int(head[3]), int(head[4])
    D = 3 if kind in (b"P3", b"P6") else 1
    if kind in (b"P2", b"P3"):
        words = re.sub(rb"#[^\n]*", b"", data[head.end() :]).split()
        values = np.array([int(word[:18]) for word in words], np.int64)
    else:
        kind_of = np.dtype(">u2" if most > 255 else np.uint8)
        behind = data[head.end() :]
        values = np.frombuffer(behind[: len(behind) // kind_of.itemsize * kind_of.itemsize], kind_of)
    if len(values) < rows * columns * D or not rows * columns:
        raise TextError(f"{where} says {rows} × {columns} pixels, and has {len(values) // D}")
    found: Pixels = values[: rows * columns * D].reshape(rows, columns, D)
    return found


def _by_pillow(content: io.BytesIO, path: Path) -> Pixels:
    try:
        from PIL import Image
    except ImportError:
        raise OptionError(
            f"{path} needs Pillow, which is not installed: pip install 'recur[image]'; .pgm, .ppm and .npy do without"
        ) from None
    with warnings.catch_warnings(), Image.open(content) as image:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        if image.width * image.height > MOST_PIXELS:
            raise TextError(f"{path} has {image.width} × {image.height} pixels, more than {MOST_PIXELS:,}")
        grey = image.mode in ("1", "L", "LA", "I", "I;16", "F")
        if image.mode in ("I", "I;16", "F"):
            return as_pixels(np.asarray(image), str(path))
        return as_pixels(np.asarray(image.convert("L" if grey else "RGB")), str(path))
