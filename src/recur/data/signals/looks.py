"""What a name holds that could be sequences of numbers: from headers and first files alone.

An .npz holds sequences, and not images, where it has an array `lengths`, or x is (N, T), or there are labels for
steps, (N, T) or with lengths of their own. Whole numbers (N, rows, columns) with a label each are images. Of other
numbers, such are images where rows and columns are as many, and otherwise it can be meant either way; so it is with
folders of .npy that all have one shape, while arrays of several lengths, or with one axis, are sequences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from recur.data.images.arrays import read_header, reading, split_name
from recur.data.signals.arrays import Arrays, find_arrays
from recur.data.signals.collection import class_folders, find_file, label_file, plain_files, read_list
from recur.data.signals.files import read_signal
from recur.errors import TextError
from recur.utils.files import open_stream, too_long

LOOK = 50
"""Files of a class whose headers are looked at."""


class Look(NamedTuple):
    labels: Literal["class", "steps", "sequences", "none"]
    """One for each sequence, one for each step, sequences of their own, or none."""
    sure: bool
    """Whether there is no doubt that it is that, and not images."""
    why: str
    """What it looks like, in words."""


def look_at(name: str) -> Look | None:
    """None for what is no sequences of numbers, or images without doubt."""
    path = Path(split_name(name)[0])
    if path.suffix.lower() == ".npz":
        return _look_at_arrays(name)
    if too_long(name) or not path.is_dir():
        return None
    if labels := label_file(path):
        return _look_at_list(path, labels)
    if classes := class_folders(path):
        return _look_at_classes(classes)
    if files := plain_files(path):
        return _look_at_files(files)
    return None


def _look_at_list(folder: Path, labels: Path) -> Look | None:
    try:
        rows = read_list(labels)
        find_file(folder, rows[0][1][0])
    except TextError:  # a text of that name
        return None
    written = [label for _, (_, label) in rows]
    why = f"{len(rows):,} sequences of numbers with labels in {labels.name}"
    if not any(len(label.split()) > 1 for label in written):
        return Look("class", True, why)
    return Look("sequences", len(set(written)) > len(written) / 2, f"{why}, several symbols each")


def _look_at_arrays(name: str) -> Look | None:
    try:
        found = find_arrays(name)
    except TextError:  # images may be laid out otherwise; what is neither is refused by who reads images
        return None
    rows = f"{found.sequences:,} sequences of numbers (array {found.x}, labels {found.y})"
    if found.y is None:
        return Look("none", False, rows) if found.lengths is not None else None
    if found.y_lengths is not None:
        return Look("sequences", True, rows)
    if found.y_shape not in ((found.sequences,), (found.sequences, 1)):
        return Look("steps", True, rows)
    if found.lengths is not None or len(found.shape) == 2:
        return Look("class", True, rows)
    return None if _like_images(found) else Look("class", False, f"{rows} of {found.shape[1]} × {found.shape[2]}")


def _like_images(found: Arrays) -> bool:
    _, R, C = found.shape
    return found.kind != "f" or R == C


def _look_at_classes(classes: list[Path]) -> Look | None:
    why = "a folder of sequences of numbers for each class"
    files = [file for folder in classes for file in plain_files(folder)[:LOOK]]
    arrays = [file for file in files if file.suffix.lower() == ".npy"]
    if len(arrays) < len(files):
        return Look("class", True, why)
    shapes, kinds = zip(*map(_header, arrays), strict=True)
    axes = {len(shape) for shape in shapes}
    if axes == {1} or (axes == {2} and len({shape[0] for shape in shapes}) > 1 == len({s[1] for s in shapes})):
        return Look("class", True, why)
    square = all(len(shape) == 2 and shape[0] == shape[1] for shape in shapes)
    return None if axes != {2} or square or "f" not in kinds else Look("class", False, why)


def _header(path: Path) -> tuple[tuple[int, ...], str]:
    with reading(path, "an array"), open_stream(path) as stream:
        shape, dtype = read_header(stream, path.stat().st_size)
    return shape, dtype.kind


def _look_at_files(files: list[Path]) -> Look | None:
    """Files that have a label for each step themselves; others are texts, or something else."""
    try:
        tags = read_signal(files[0]).tags
    except TextError:
        return None
    if tags is None:
        return None
    return Look("steps", True, f"{len(files):,} sequences of numbers with a label for each step")
