"""Encoded pairs; choice of the token; lines that show predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from recur.data.batching import padded
from recur.data.text import Pair, Vocab
from recur.data.text.stream import Ids
from recur.errors import TextError
from recur.models.options import NetworkOptions
from recur.runs import Vocabs

LOOK = 2000
"""Number of lines that decide."""

SENTENCE = 3.0
"""Mean number of words per line from which lines are sentences."""


OptionsT = TypeVar("OptionsT", bound=NetworkOptions)


def with_time_scale(options: OptionsT, lengths: Callable[[], Iterable[int]]) -> OptionsT:
    """Return options whose time scale is the longest of these lengths, if t is an input and no scale is given."""
    if not options.time_input or options.time_scale is not None:
        return options
    return options.changed(time_scale=float(max(lengths(), default=1)))


def choose_token(texts: Iterable[str]) -> Literal["char", "word"]:
    """Return `word` for sentences with spaces, and `char` for names, single words and Chinese."""
    counts = [len(text.split()) for text in islice(texts, LOOK)]
    return "word" if counts and sum(counts) / len(counts) >= SENTENCE else "char"


EncodedPair = tuple[Ids, Ids]


@dataclass(frozen=True)
class PairData:
    vocabs: Vocabs
    train: list[EncodedPair]
    valid: list[EncodedPair]
    train_pairs: list[Pair]
    valid_pairs: list[Pair]
    left_out: int = 0
    """Number of training pairs whose targets are too long."""


class PairBatch(NamedTuple):
    source: Tensor
    """(B, S), padded; (B, 1) of labels."""
    source_lengths: Tensor
    target: Tensor
    """(B, T), padded."""
    lengths: Tensor

    def to(self, device: torch.device) -> PairBatch:
        """Move the batch to a device. The source lengths stay on the CPU, where scans read them."""
        source, target, lengths = (
            part.to(device, non_blocking=True) for part in (self.source, self.target, self.lengths)
        )
        return PairBatch(source, self.source_lengths, target, lengths)


def pair_batch(pairs: Sequence[EncodedPair]) -> PairBatch:
    return PairBatch(*padded([source for source, _ in pairs]), *padded([target for _, target in pairs]))


def pair_size(pair: EncodedPair) -> int:
    return len(pair[0]) + len(pair[1])


def max_steps(pair: EncodedPair) -> int:
    """Return the number of steps of the longer side; the target has one more, its end symbol."""
    return max(len(pair[0]), len(pair[1]) + 1)


def encode_pairs(
    pairs: Sequence[Pair], source: Vocab, target: Vocab, *, longest: int | None, equal: bool
) -> list[EncodedPair]:
    """Return the ids of pairs. `longest` limits the target; `equal` requires targets as long as their sources."""
    found: list[EncodedPair] = []
    sources, targets = source.encode_lines([p.source for p in pairs]), target.encode_lines([p.target for p in pairs])
    for pair, *both in zip(pairs, sources, targets, strict=True):
        ids = both[0].astype(np.int64), both[1].astype(np.int64)
        if not len(ids[0]) or not len(ids[1]):
            raise TextError(f"{pair.where}: the {'target' if len(ids[0]) else 'source'} has no symbol")
        if longest is not None and len(ids[1]) > longest:
            raise TextError(f"{pair.where}: the target has {len(ids[1])} symbols, and --max-length is {longest}")
        if equal and len(ids[0]) != len(ids[1]):
            raise TextError(f"{pair.where}: {len(ids[1])} symbols from {len(ids[0])}; --stop source wants as many")
        found.append(ids)
    return found


FEW = 4
LONGEST = 120
"""Number of characters of an example that are shown."""


def example_line(what: str, found: str, true: str) -> str:
    """Return a line such as `a fine film → good`, with the target behind it where the prediction is wrong."""
    what = what if len(what) <= LONGEST else what[: LONGEST - 1] + "…"
    return f"{what} → {found}" + ("" if found == true else f"   ✗ {true}")


def class_examples(
    shown: Sequence[str], found: Iterable[int], true: Iterable[int], classes: Sequence[str], unseen: str = "?"
) -> str:
    """Return lines of examples with predicted and true classes; classes outside the training set have no name."""
    names = [*classes, unseen]
    triples = zip(shown, found, true, strict=True)
    return "\n".join(
        example_line(what, names[k], names[min(j, len(classes)) if j >= 0 else -1]) for what, k, j in triples
    )
