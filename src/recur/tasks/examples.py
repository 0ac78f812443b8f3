"""Training, validation and test parts of a list of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from recur.errors import TextError
from recur.tasks.forms import parse_fold
from recur.tasks.options import FoldOptions, SplitOptions

Item = TypeVar("Item")


def split(
    options: SplitOptions, read: Callable[[Sequence[str]], list[Item]]
) -> tuple[list[Item], list[Item], list[Item]]:
    """Training, validation and test; parts that are not given are held out, one in twenty each, at random; of folds,
    one and a tenth of the rest. Files to test on are not read here, where nothing is measured on them: the part is
    empty then, and `test_part` has it."""
    items = read(options.texts)
    if isinstance(options, FoldOptions) and options.fold:
        return _fold(options, read, items)
    parts: dict[str, list[Item]] = {"valid": read(options.valid)} if options.valid else {}
    if options.test:
        parts["test"] = []
    missing = [name for name in ("valid", "test") if name not in parts]
    held = len(items) // 20
    if missing and not held:
        flags = " and ".join(f"--{name}" for name in missing)
        raise TextError(f"{', '.join(options.texts)}: {len(items)} examples are too few to hold some out; give {flags}")
    # Files are often sorted: a run of lines is no sample. The draw is the same for every seed of training.
    order = [int(k) for k in np.random.default_rng(0).permutation(len(items))]
    for name in missing:
        parts[name], order = [items[k] for k in order[:held]], order[held:]
    return [items[k] for k in sorted(order)], parts["valid"], parts["test"]


def _fold(
    options: FoldOptions, read: Callable[[Sequence[str]], list[Item]], items: list[Item]
) -> tuple[list[Item], list[Item], list[Item]]:
    k, n = parse_fold(options.fold)
    if len(items) < max(2 * n, 20):
        raise TextError(f"{', '.join(options.texts)}: {len(items)} examples are too few for {n} folds")
    order = [int(i) for i in np.random.default_rng(0).permutation(len(items))]
    test = set(order[k - 1 :: n])
    rest = [i for i in order if i not in test]
    held = set() if options.valid else set(rest[: len(rest) // 10])
    valid = read(options.valid) if options.valid else [items[i] for i in sorted(held)]
    return [items[i] for i in sorted(rest) if i not in held], valid, [items[i] for i in sorted(test)]


def test_part(options: SplitOptions, read: Callable[[Sequence[str]], list[Item]]) -> list[Item]:
    """What is measured once; training files are read only if it is held out of them."""
    return read(options.test) if options.test else split(options, read)[2]
