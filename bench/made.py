"""Generated images whose class depends on two dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

IMAGES, SIZE, NOISE = 4000, 16, 6


def rings(path: Path) -> tuple[str, ...]:
    """Rectangles of one pixel's width: closed, or with a single gap somewhere, among pixels that mean nothing."""
    draw = np.random.default_rng(0)
    images, labels = np.zeros((IMAGES, SIZE, SIZE), np.uint8), draw.integers(0, 2, IMAGES)
    for image, closed in zip(images, labels, strict=True):
        (top, left), (height, width) = draw.integers(0, 7, 2), draw.integers(5, 9, 2)
        bottom, right = min(top + height, SIZE - 1), min(left + width, SIZE - 1)
        image[[top, bottom], left : right + 1] = 200
        image[top : bottom + 1, [left, right]] = 200
        line = np.argwhere(image)
        if not closed:
            image[tuple(line[draw.integers(len(line))])] = 0
        for r, c in draw.integers(0, SIZE, (NOISE, 2)):
            if not image[max(r - 1, 0) : r + 2, max(c - 1, 0) : c + 2].any():
                image[r, c] = 200
    np.savez(path, x=images, y=labels)
    return (str(path),)
