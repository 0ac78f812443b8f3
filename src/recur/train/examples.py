"""Examples that stand alone (lines, sentences, trees, windows): held out, shuffled and put into batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from recur.errors import TextError
from recur.text import SPECIALS, Vocab
from recur.text.tokens import Lines
from recur.train.config import Config

Item = TypeVar("Item")

POOL = 20
"""Batches among which examples are sorted by their size, so that little is padded."""


def split(config: Config, read: Callable[[Sequence[str]], list[Item]]) -> tuple[list[Item], list[Item], list[Item]]:
    """Training, validation and test; parts that are not given are held out, one in twenty each, at random."""
    items = read(config.texts)
    valid, test = (None if name is None else read([name]) for name in (config.valid, config.test))
    # Files are often sorted: a run of lines is no sample. The draw is the same for every seed of training.
    order = [int(k) for k in np.random.default_rng(0).permutation(len(items))]
    held = len(items) // 20
    if not held and (valid is None or test is None):
        raise TextError(
            f"{', '.join(config.texts)}: {len(items)} examples are too few to hold some out; give --valid and --test"
        )
    if valid is None:
        valid, order = [items[k] for k in order[:held]], order[held:]
    if test is None:
        test, order = [items[k] for k in order[:held]], order[held:]
    return [items[k] for k in sorted(order)], valid, test


def label_vocab(labels: Sequence[str]) -> Vocab:
    """The labels in their order, numbers by size, behind the special tokens; class k is id 4 + k."""
    counts = Counter(labels)
    return names_vocab({label: counts[label] for label in sorted(counts, key=_by_size)})


def names_vocab(counts: Mapping[str, int]) -> Vocab:
    """Names as they stand, behind the special tokens, so that a run's folder keeps them."""
    return Vocab((*SPECIALS, *counts), (0, 0, 0, 0, *counts.values()), Lines())


def _by_size(label: str) -> tuple[float, str]:
    return (float(label), label) if label.isdecimal() else (float("inf"), label)


def classes_of(vocab: Vocab) -> tuple[str, ...]:
    return vocab.tokens[len(SPECIALS) :]


def class_weights(vocab: Vocab) -> Tensor:
    """N / (classes · n_k): every class weighs as much as any other, and all together as much as the examples do."""
    counts = torch.tensor(vocab.counts[len(SPECIALS) :], dtype=torch.get_default_dtype())
    return counts.sum() / (len(counts) * counts)


def class_of(label: str, classes: dict[str, int], where: str) -> int:
    """A label's number, or what is wrong with it."""
    if label in classes:
        return classes[label]
    names = list(classes)
    known = f"{names[0]} … {names[-1]}" if all(name.isdecimal() for name in names) else ", ".join(names[:20])
    raise TextError(f"{where}: label {label!r} is outside the range of those learned from: {known}")


@dataclass(frozen=True)
class Shuffled(Generic[Item]):
    """Examples in random order, those of like size together; an epoch is drawn from (seed, epoch) alone."""

    items: Sequence[Item]
    batch: int
    seed: int
    collate: Callable[[list[Item]], Any]
    size: Callable[[Item], int] = lambda item: 0

    def __len__(self) -> int:
        return -(-len(self.items) // self.batch)

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[Any]:
        draw = np.random.default_rng((self.seed, epoch))
        order = draw.permutation(len(self.items))
        sizes = np.array([self.size(item) for item in self.items])
        pools = np.split(order, range(POOL * self.batch, len(order), POOL * self.batch))
        order = np.concatenate([pool[np.argsort(sizes[pool], kind="stable")] for pool in pools])
        for k in draw.permutation(len(self))[skip:]:
            yield self.collate([self.items[i] for i in order[k * self.batch : (k + 1) * self.batch]])

    def in_order(self) -> Iterator[Any]:
        """Every example once, as they stand, to measure on."""
        for at in range(0, len(self.items), self.batch):
            yield self.collate(list(self.items[at : at + self.batch]))
