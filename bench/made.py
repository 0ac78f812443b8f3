"""Data sets that are made: images whose class lies in two dimensions, and rows whose columns act together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

IMAGES, SIZE, NOISE = 4000, 16, 6
ROWS = 2000


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


def products(path: Path) -> tuple[str, ...]:
    """y = a · b, turned round where the colour is blue, and some noise."""
    draw = np.random.default_rng(0)
    lines = ["a,b,colour,y"]
    for _ in range(ROWS):
        (a, b), blue, noise = draw.normal(size=2), int(draw.integers(2)), draw.normal()
        lines.append(f"{a:.4f},{b:.4f},{('red', 'blue')[blue]},{a * b * (1 - 2 * blue) + 0.05 * noise:.4f}")
    path.write_text("\n".join(lines) + "\n")
    return (str(path),)
