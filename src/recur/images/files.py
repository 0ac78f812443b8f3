"""One image from a file: pixels (R, C, D), D 1 for grey and 3 for colour, in the numbers that the file has.

.npy and the Netpbm formats (.pgm and .ppm, as text or as bytes) are read here; .png, .jpg, .bmp and others by Pillow.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from recur.errors import OptionError, TextError

Pixels = np.ndarray[tuple[int, int, int], np.dtype[Any]]
"""(R, C, D)"""

SUFFIXES = (".pgm", ".ppm", ".npy", ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def read_image(path: Path | str) -> Pixels:
    path = Path(path)
    try:
        if path.suffix.lower() == ".npy":
            return as_pixels(np.load(path, allow_pickle=False), str(path))
        if path.suffix.lower() in (".pgm", ".ppm"):
            return _netpbm(path.read_bytes(), str(path))
    except (OSError, ValueError, EOFError) as error:
        raise TextError(f"{path} cannot be read as an image: {' '.join(str(error).split())}") from None
    return _by_pillow(path)


def as_pixels(array: np.ndarray[Any, Any], where: str) -> Pixels:
    """(R, C) or (R, C, D) as (R, C, D)."""
    found = array[..., None] if array.ndim == 2 else array
    if found.ndim != 3 or 0 in found.shape or found.shape[2] not in (1, 3) or found.dtype.kind not in "uifb":
        raise TextError(f"{where} is no image: (rows, columns) or (rows, columns, 3) of numbers, got {array.shape}")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise TextError(f"{where} has values that are not finite")
    return found


_HEADER = re.compile(rb"(P[2356])((?:\s+|#[^\n]*\n)+)(\d+)((?:\s+|#[^\n]*\n)+)(\d+)((?:\s+|#[^\n]*\n)+)(\d+)\s")


def _netpbm(data: bytes, where: str) -> Pixels:
    """Grey (P2, P5) or colour (P3, P6), as text (P2, P3) or as bytes, two of them where the largest value needs it."""
    head = _HEADER.match(data)
    if head is None:
        raise TextError(
            f"{where} is no image: a .pgm or .ppm begins with P2, P3, P5 or P6, its width, height and maximum"
        )
    kind, columns, rows, most = head[1], int(head[3]), int(head[5]), int(head[7])
    D = 3 if kind in (b"P3", b"P6") else 1
    if kind in (b"P2", b"P3"):
        words = re.sub(rb"#[^\n]*", b"", data[head.end() :]).split()
        values = np.array([int(word) for word in words], np.int64)
    else:
        values = np.frombuffer(data[head.end() :], ">u2" if most > 255 else np.uint8)
    if len(values) < rows * columns * D or not rows * columns:
        raise TextError(f"{where} says {rows} × {columns} pixels, and has {len(values) // D}")
    found: Pixels = values[: rows * columns * D].reshape(rows, columns, D)
    return found


def _by_pillow(path: Path) -> Pixels:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise OptionError(
            f"{path} needs Pillow, which is not installed: pip install 'recur[image]'; .pgm, .ppm and .npy do without"
        ) from None
    try:
        with Image.open(path) as image:
            grey = image.mode in ("1", "L", "LA", "I", "I;16", "F")
            if image.mode in ("I", "I;16", "F"):
                return as_pixels(np.asarray(image), str(path))
            return as_pixels(np.asarray(image.convert("L" if grey else "RGB")), str(path))
    except (OSError, UnidentifiedImageError, ValueError) as error:
        raise TextError(f"{path} cannot be read as an image: {' '.join(str(error).split())}") from None
