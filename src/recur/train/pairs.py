"""From pairs to batches: read, split, encoded and padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.errors import TextError
from recur.text import PAD, Pair, Vocab, read_pairs
from recur.text.tokens import Ids
from recur.train.config import Config

POOL = 20
"""Batches among which sequences are sorted by their length, so that little is padded."""


@dataclass(frozen=True)
class PairData:
    vocabs: dict[str, Vocab]
    train: list[tuple[Ids, Ids]]
    valid: list[tuple[Ids, Ids]]
    train_pairs: list[Pair]
    valid_pairs: list[Pair]


class PairBatch(NamedTuple):
    source: Tensor
    """(B, S), padded; (B, 1) of labels."""
    source_lengths: Tensor
    target: Tensor
    """(B, T), padded."""
    lengths: Tensor

    def to(self, device: torch.device) -> PairBatch:
        """Lengths of sources stay on the CPU, where scans want them."""
        moved = (part.to(device, non_blocking=True) for part in (self.source, self.target, self.lengths))
        source, target, lengths = moved
        return PairBatch(source, self.source_lengths, target, lengths)


def split_pairs(config: Config) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Training, validation and test; parts that are not given are held out, one pair in twenty each, at random."""
    pairs = read_pairs(config.texts)
    named = {part: getattr(config, part) for part in ("valid", "test")}
    parts = {part: read_pairs(name.split(",")) for part, name in named.items() if name is not None}
    missing = [part for part in named if part not in parts]
    held = len(pairs) // 20
    if missing and not held:
        said = " and ".join(f"--{part}" for part in missing)
        raise TextError(f"{config.texts[0]}: {len(pairs)} pairs are too few to hold some of them out; give {said}")
    # Tables are often sorted, so that a stretch of one is no sample. The draw is the same for every seed of training.
    order = np.random.default_rng(0).permutation(len(pairs))
    for k, part in enumerate(missing):
        parts[part] = [pairs[i] for i in order[k * held : (k + 1) * held]]
    return [pairs[i] for i in sorted(order[len(missing) * held :])], parts["valid"], parts["test"]


def encode_pairs(
    pairs: list[Pair], source: Vocab, target: Vocab, *, longest: int | None, equal: bool
) -> list[tuple[Ids, Ids]]:
    """Ids of pairs; `longest` bounds the target, `equal` wants it as long as its source."""
    found = []
    for pair in pairs:
        ids = source.encode(pair.source).astype(np.int64), target.encode(pair.target).astype(np.int64)
        if not len(ids[0]) or not len(ids[1]):
            raise TextError(f"{pair.where}: the {'target' if len(ids[0]) else 'source'} has no symbol")
        if longest is not None and len(ids[1]) > longest:
            raise TextError(f"{pair.where}: the target has {len(ids[1])} symbols, and --longest is {longest}")
        if equal and len(ids[0]) != len(ids[1]):
            raise TextError(f"{pair.where}: {len(ids[1])} symbols from {len(ids[0])}; --stop source wants as many")
        found.append(ids)
    return found


def padded(rows: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    table = np.full((len(rows), int(lengths.max())), PAD, np.int64)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return torch.from_numpy(table), lengths


def batch_of(pairs: Sequence[tuple[Ids, Ids]]) -> PairBatch:
    return PairBatch(*padded([source for source, _ in pairs]), *padded([target for _, target in pairs]))


@dataclass(frozen=True)
class PairBatches:
    """Pairs in random order, those of like length together; an epoch is drawn from (seed, epoch) alone."""

    pairs: list[tuple[Ids, Ids]]
    batch: int
    seed: int = 0

    def __len__(self) -> int:
        return -(-len(self.pairs) // self.batch)

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[PairBatch]:
        draw = np.random.default_rng((self.seed, epoch))
        order = draw.permutation(len(self.pairs))
        lengths = np.array([len(source) + len(target) for source, target in self.pairs])
        pool = POOL * self.batch
        order = np.concatenate(
            [part[np.argsort(lengths[part], kind="stable")] for part in np.split(order, range(pool, len(order), pool))]
        )
        for k in draw.permutation(len(self))[skip:]:
            yield batch_of([self.pairs[i] for i in order[k * self.batch : (k + 1) * self.batch]])
