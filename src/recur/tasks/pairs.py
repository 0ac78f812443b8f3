"""From pairs to batches: encoded and padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.data.batching import padded
from recur.data.text import Pair, Vocab
from recur.data.text.stream import Ids
from recur.errors import TextError
from recur.runs import Vocabs

EncodedPair = tuple[Ids, Ids]


@dataclass(frozen=True)
class PairData:
    vocabs: Vocabs
    train: list[EncodedPair]
    valid: list[EncodedPair]
    train_pairs: list[Pair]
    valid_pairs: list[Pair]
    left_out: int = 0
    """Training pairs whose targets are too long."""


class PairBatch(NamedTuple):
    source: Tensor
    """(B, S), padded; (B, 1) of labels."""
    source_lengths: Tensor
    target: Tensor
    """(B, T), padded."""
    lengths: Tensor

    def to(self, device: torch.device) -> PairBatch:
        """Lengths of sources stay on the CPU, where scans want them."""
        source, target, lengths = (
            part.to(device, non_blocking=True) for part in (self.source, self.target, self.lengths)
        )
        return PairBatch(source, self.source_lengths, target, lengths)


def pair_batch(pairs: Sequence[EncodedPair]) -> PairBatch:
    return PairBatch(*padded([source for source, _ in pairs]), *padded([target for _, target in pairs]))


def pair_size(pair: EncodedPair) -> int:
    return len(pair[0]) + len(pair[1])


def longer_half(pair: EncodedPair) -> int:
    """Steps of the longer half; what is written has its end beside its symbols."""
    return max(len(pair[0]), len(pair[1]) + 1)


def encode_pairs(
    pairs: Sequence[Pair], source: Vocab, target: Vocab, *, longest: int | None, equal: bool
) -> list[EncodedPair]:
    """Ids of pairs; `longest` bounds the target, `equal` wants it as long as its source."""
    found: list[EncodedPair] = []
    sources, targets = source.encode_lines([p.source for p in pairs]), target.encode_lines([p.target for p in pairs])
    for pair, *both in zip(pairs, sources, targets, strict=True):
        ids = both[0].astype(np.int64), both[1].astype(np.int64)
        if not len(ids[0]) or not len(ids[1]):
            raise TextError(f"{pair.where}: the {'target' if len(ids[0]) else 'source'} has no symbol")
        if longest is not None and len(ids[1]) > longest:
            raise TextError(f"{pair.where}: the target has {len(ids[1])} symbols, and --longest is {longest}")
        if equal and len(ids[0]) != len(ids[1]):
            raise TextError(f"{pair.where}: {len(ids[1])} symbols from {len(ids[0])}; --stop source wants as many")
        found.append(ids)
    return found
