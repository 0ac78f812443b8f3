"""Counting n-grams with sorted arrays.

CountLevel k holds every k-gram that was seen, once. A k-gram is written as a number: the place of its first k − 1 tokens in
level k − 1, times K, plus its last token. So level k is one sorted array of keys; the k-grams of one context stand next
to each other, the last tokens in order; and looking n-grams up is a binary search, for a whole text at once.

Where lines are sequences of their own, a sequence is <bos> w₁ … w_m <eos>, and no n-gram reaches across its start. Read
from the end it is <bos> w_m … w₁ <eos>.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from recur.data.text.stream import Ids, Mask
from recur.data.text.tokenizers import BOS, EOS
from recur.errors import OptionError, TextError, TooLargeError
from recur.utils.files import memory


def bytes_needed(tokens: int, order: int) -> int:
    """To count so many tokens, at most: nine arrays of them while a level is sorted, and all levels, none longer than
    the text."""
    return tokens * (72 + 25 * order)


def check_memory(tokens: int, order: int) -> None:
    """Refuse what half of this memory does not hold, with the way out."""
    needed, there = bytes_needed(tokens, order), memory()
    if needed > there / 2:
        raise TooLargeError(
            f"counting {tokens:,} tokens up to order {order} takes up to {needed / 1e9:,.0f} GB, and this machine has "
            f"{there / 1e9:,.0f}: KenLM counts on disk (lmplz -o {order} <TEXT >MODEL.arpa), whose file is read here: "
            "recur eval RUN MODEL.arpa TEXT, recur ngram --load MODEL.arpa"
        )


@dataclass(frozen=True)
class Sequences:
    """Ids laid end to end, each sequence behind a <bos> where lines are sequences."""

    ids: Ids
    """(N,), int64."""
    depth: Ids
    """(N,): how many tokens of its own sequence stand before a token; <bos> has none."""
    has_bos: bool
    """Whether each sequence begins with <bos>."""

    @staticmethod
    def of(ids: Ids, by_line: bool, backward: bool = False) -> Sequences:
        """Of a text's ids; `backward` reads it from the end, each line with its end behind what was its first token."""
        ids = np.asarray(ids, np.int64)
        if not by_line:
            return Sequences(ids[::-1] if backward else ids, np.arange(len(ids)), has_bos=False)
        if len(ids) and ids[-1] != EOS:  # a last line without its end
            ids = np.append(ids, EOS)
        if backward:
            ids = np.append(ids[:-1][::-1], ids[-1:])
        ends = np.nonzero(ids == EOS)[0]
        starts = np.concatenate([[0], ends[:-1] + 1])
        ids = np.insert(ids, starts, BOS)
        first = starts + np.arange(len(starts))
        depth = np.arange(len(ids)) - np.repeat(first, np.diff(np.append(first, len(ids))))
        return Sequences(ids, depth, has_bos=True)

    def inside(self, k: int) -> Mask:
        """(N,): the k-gram that ends here lies within its sequence, <bos> not being part of it."""
        return self.depth >= k - 1 + self.has_bos

    @property
    def predicted(self) -> Mask:
        """(N,): every token but <bos>, which is never predicted."""
        predicted: Mask = self.ids != BOS
        return predicted


@dataclass(frozen=True)
class CountLevel:
    """All k-grams of one k."""

    keys: Ids
    """(n,), sorted: place of the context in the level below · K + last token."""
    counts: Ids
    suffix: Ids
    """(n,): the place of the last k − 1 tokens in the level below."""
    from_start: Mask
    """(n,): it begins with <bos>, so nothing can stand before it."""

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Counts:
    """Levels 1 … n of a text, over a vocabulary of K tokens."""

    order: int
    K: int
    predictable: Mask
    """(K,): what can come next at all."""
    levels: list[CountLevel] = field(repr=False)

    @staticmethod
    def of(sequences: Sequences, order: int, K: int, predictable: Mask) -> Counts:
        if isinstance(order, bool) or not isinstance(order, int) or order < 1:
            raise OptionError(f"order must be a whole number ≥ 1, got {order!r}")
        ids, depth = sequences.ids, sequences.depth
        if not len(ids):
            raise TextError("there is no token to count")
        one = np.arange(K)
        levels = [CountLevel(one, np.bincount(ids, minlength=K), np.zeros(K, np.int64), one == BOS)]
        place = ids  # of the k-gram that ends at each token, in level k
        for k in range(2, order + 1):
            ends = np.nonzero(depth >= k - 1)[0]
            keys, at, counts = _unique(place[ends - 1] * K + ids[ends])
            suffix = np.empty(len(keys), np.int64)
            suffix[at] = place[ends]
            levels.append(CountLevel(keys, counts, suffix, levels[-1].from_start[keys // K]))
            place = np.full(len(ids), -1)
            place[ends] = at
        return Counts(order, K, predictable, levels)

    @property
    def m(self) -> int:
        """How many different tokens can come next."""
        return int(self.predictable.sum())


def ngram_indices(keys: Sequence[Ids], K: int, sequences: Sequences) -> Iterator[tuple[Ids, Ids]]:
    """For k = 1, 2, …: where the context before each token stands in level k − 1, and the k-gram that ends there in
    level k; −1 for what is not there. `keys` are those of the levels."""
    ids, depth = sequences.ids, sequences.depth
    place = ids
    yield np.full(len(ids), -1), place
    for k, level in enumerate(keys[1:], start=2):
        before = np.append(-1, place[:-1])
        before[depth < k - 1] = -1
        known = before >= 0
        place = np.full(len(ids), -1)
        place[known] = find_keys(level, before[known] * K + ids[known])
        yield before, place


def find_keys(keys: Ids, queries: Ids) -> Ids:
    """The place of each query among sorted keys, or −1."""
    if not len(keys):
        return np.full(len(queries), -1)
    at = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[at] == queries, at, -1)


def _unique(keys: Ids) -> tuple[Ids, Ids, Ids]:
    """np.unique with inverse and counts, from one sort."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.append(np.ones(min(len(keys), 1), bool), ordered[1:] != ordered[:-1])
    inverse = np.empty(len(keys), np.int64)
    inverse[order] = np.cumsum(first) - 1
    starts = np.nonzero(first)[0]
    return ordered[starts], inverse, np.diff(np.append(starts, len(keys)))
