"""Many sequences in an .npz, of any lengths.

    x          (N, T, D), or (N, T) for one feature a step; or all steps behind each other, (S, D) or (S,)
    lengths    (N,): how many steps each sequence has. Needed where they stand behind each other
    y          one label a sequence (N,), whole numbers or text;
               or a label for each step, laid out as x is: (N, T), or (S,) behind each other;
               or label sequences of lengths of their own, (N, L) or behind each other, with
    y_lengths  (N,)

`y` may be called label, labels, target, targets, tag or tags, `lengths` x_lengths, and x whatever it likes. A file may
hold parts: x_train, lengths_train, y_train, x_test and so on; FILE.npz:test names one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from recur.errors import TextError, listed
from recur.images.arrays import PARTS, headers, part_of, read_arrays, reading, split_name
from recur.signals.files import BEYOND, MOST_FEATURES, Values

LABELS = ("y", "label", "labels", "target", "targets", "tag", "tags")
LENGTHS = ("lengths", "x_lengths")
LABEL_LENGTHS = tuple(f"{name}_lengths" for name in LABELS)

Target = str | tuple[str, ...] | None
"""A label as it is written; or several that stand apart; or none."""


class Arrays(NamedTuple):
    """The names of a file's arrays, or of one part's, and what their headers say."""

    x: str
    lengths: str | None
    y: str | None
    y_lengths: str | None
    shape: tuple[int, ...]
    """Of x …"""
    kind: str
    """… and the letter of its type."""
    y_shape: tuple[int, ...]
    sequences: int
    """How many sequences there are."""
    parts: tuple[str, ...]
    """The parts that the file has, none if it is whole."""


def find_arrays(name: str) -> Arrays:
    """What an .npz of sequences holds, or one part of it; from the headers of its arrays alone."""
    path, part = split_name(name)
    shapes = headers(path)
    parts = tuple(p for p in PARTS if any(part_of(array) == p for array in shapes))
    if parts and part not in parts:
        raise TextError(f"{path} has no part {part}; it has {', '.join(parts)}")
    own = {_role(array): array for array in shapes if not parts or part_of(array) == part}
    named = listed([f"{array} {shapes[array][0]}" for array in own.values()]) or "nothing"
    roles = {*LABELS, *LENGTHS, *LABEL_LENGTHS}
    others = [array for role, array in own.items() if role not in roles]
    numbers = [array for array in others if shapes[array][1] in "uifb" and len(shapes[array][0]) in (1, 2, 3)]
    if len(numbers) != 1:
        many = "several arrays that could be sequences" if numbers else "no array of sequences (N, steps, features)"
        raise TextError(f"{path} has {many}: {named}")
    x, (shape, kind) = numbers[0], shapes[numbers[0]]
    lengths, y, y_lengths = (
        next((own[role] for role in names if role in own), None) for names in (LENGTHS, LABELS, LABEL_LENGTHS)
    )
    for array in filter(None, (lengths, y_lengths)):
        if len(shapes[array][0]) != 1 or shapes[array][1] not in "ui":
            raise TextError(f"{path}: {array} must be whole numbers (N,), got {shapes[array][0]}")
    if lengths is None and len(shape) == 1:
        raise TextError(f"{path}: {x} is {shape}: steps behind each other need an array lengths (N,)")
    count = shape[0] if lengths is None else shapes[lengths][0][0]
    if 0 in shape or not count or (len(shape) == 3 and shape[2] > MOST_FEATURES):
        raise TextError(f"{path}: {x} is {shape} with {count} lengths: no sequence of numbers")
    if len(shape) == 3 and count != shape[0]:
        raise TextError(f"{path}: {count} lengths, and {x} has {shape[0]} sequences")
    if y is not None and (shapes[y][1] not in "uibUS" or len(shapes[y][0]) not in (1, 2)):
        raise TextError(f"{path}: {y} must be whole numbers or text, (N,) or (N, L), got {shapes[y][0]}")
    return Arrays(x, lengths, y, y_lengths, shape, kind, () if y is None else shapes[y][0], count, parts)


def _role(array: str) -> str:
    """The name without its part."""
    words = array.lower().replace("-", "_").split("_")
    parts = {word for words_of_part in PARTS.values() for word in words_of_part}
    if len(words) > 1 and words[0] in parts:
        words = words[1:]
    elif len(words) > 1 and words[-1] in parts:
        words = words[:-1]
    return "_".join(words)


def read_sequences(name: str) -> tuple[list[Values], list[Target]]:
    """All sequences of an .npz, (T, D) each, and what stands beside them."""
    path, _ = split_name(name)
    found = find_arrays(name)
    names = [array for array in (found.x, found.lengths, found.y, found.y_lengths) if array is not None]
    arrays = dict(zip(names, read_arrays(path, *names), strict=True))
    x = _numbers(arrays[found.x], f"{path}: {found.x}")
    lengths = None if found.lengths is None else _lengths(arrays[found.lengths], path, found.lengths)
    rows = _cut(x, lengths, found.sequences, f"{path}: {found.x}")
    if min(map(len, rows)) == 0:
        raise TextError(f"{name}[{[len(row) for row in rows].index(0)}] has no step")
    values = [np.ascontiguousarray(row.reshape(len(row), -1), np.float32) for row in rows]
    return values, _targets(found, arrays, [len(row) for row in rows], path)


def _numbers(x: np.ndarray[Any, Any], where: str) -> np.ndarray[Any, Any]:
    if x.dtype.kind == "f" and not (np.abs(x) < BEYOND).all():
        raise TextError(f"{where} has values that are not finite, or beyond {BEYOND:g}")
    return x


def _lengths(array: np.ndarray[Any, Any], path: str, name: str) -> list[int]:
    found: list[int] = array.tolist()
    if min(found, default=0) < 0:
        raise TextError(f"{path}: {name} holds {min(found)}: no length")
    return found


def _cut(x: np.ndarray[Any, Any], lengths: list[int] | None, count: int, where: str) -> list[np.ndarray[Any, Any]]:
    """One array for each sequence, of all that are padded to one length or stand behind each other."""
    if lengths is None:
        if len(x) != count or x.ndim < 2:
            raise TextError(f"{where} is {x.shape}, and there are {count} sequences")
        return list(x)
    if len(lengths) != count:
        raise TextError(f"{where}: {len(lengths)} lengths, and there are {count} sequences")
    if x.ndim < 3 and sum(lengths) == len(x):
        return np.split(x, np.cumsum(lengths)[:-1])
    if x.ndim > 1 and len(x) == count and max(lengths) <= x.shape[1]:
        return [row[:n] for row, n in zip(x, lengths, strict=True)]
    raise TextError(f"{where} is {x.shape}, and {count} lengths up to {max(lengths)} with a sum of {sum(lengths)}")


def _targets(found: Arrays, arrays: dict[str, np.ndarray[Any, Any]], steps: list[int], path: str) -> list[Target]:
    if found.y is None:
        return [None] * found.sequences
    y, where = arrays[found.y], f"{path}: {found.y}"
    with reading(path, "an .npz"):
        text = y.astype(str)
    if found.y_lengths is not None:
        own = _lengths(arrays[found.y_lengths], path, found.y_lengths)
        return [tuple(row.tolist()) for row in _cut(text, own, found.sequences, where)]
    if text.shape in ((found.sequences,), (found.sequences, 1)):
        return list(text.reshape(-1).tolist())
    return [tuple(row.tolist()) for row in _cut(text, steps, found.sequences, where)]
