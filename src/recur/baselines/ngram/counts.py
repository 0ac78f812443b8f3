"""n-gram counts in sorted arrays.

Level k holds every observed k-gram once, encoded as an integer: the index of its first k − 1 tokens in level k − 1,
times K, plus its last token. So a level is one sorted array of keys, the k-grams of a context are adjacent, and lookup
is a binary search for a whole text at once.

If lines are separate sequences, a sequence is <bos> w₁ … w_m <eos>, and no n-gram crosses its start. Read backwards it
is <bos> w_m … w₁ <eos>.
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
    """Return an upper bound of the memory for counting: nine arrays while sorting a level, plus all levels."""
    return tokens * (72 + 25 * order)


def check_memory(tokens: int, order: int) -> None:
    """Raise TooLargeError if counting needs more than half of the memory; the message names an alternative."""
    needed, there = bytes_needed(tokens, order), memory()
    if needed > there / 2:
        raise TooLargeError(
            f"counting {tokens:,} tokens up to order {order} takes up to {needed / 1e9:,.0f} GB, and this machine has "
            f"{there / 1e9:,.0f}: KenLM counts on disk (lmplz -o {order} <TEXT >MODEL.arpa), whose file is read here: "
            "recur eval RUN MODEL.arpa TEXT, recur ngram --load MODEL.arpa"
        )


@dataclass(frozen=True)
class Sequences:
    """Concatenated ids; if lines are sequences, each starts with <bos>."""

    ids: Ids
    """(N,), int64."""
    depth: Ids
    """(N,): number of tokens of the same sequence before a token; 0 for <bos>."""
    has_bos: bool
    """Whether each sequence begins with <bos>."""

    @staticmethod
    def of(ids: Ids, by_line: bool, backward: bool = False) -> Sequences:
        """Return the sequences of a text; `backward` reads it from the end, each line with <eos> last."""
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
        """Return a mask (N,): whether the k-gram ending here is inside its sequence, not counting <bos>."""
        return self.depth >= k - 1 + self.has_bos

    @property
    def predicted(self) -> Mask:
        """Mask (N,) of all tokens but <bos>, which is never predicted."""
        predicted: Mask = self.ids != BOS
        return predicted


@dataclass(frozen=True)
class CountLevel:
    """All k-grams of one k."""

    keys: Ids
    """(n,), sorted: index of the context in the level below · K + last token."""
    counts: Ids
    suffix: Ids
    """(n,): index of the last k − 1 tokens in the level below."""
    from_start: Mask
    """(n,): whether it begins with <bos>, so that nothing can come before it."""

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Counts:
    """Levels 1 … n of a text over a vocabulary of K tokens."""

    order: int
    K: int
    predictable: Mask
    """(K,): tokens that can be predicted."""
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
        """Number of tokens that can be predicted."""
        return int(self.predictable.sum())


def ngram_indices(keys: Sequence[Ids], K: int, sequences: Sequences) -> Iterator[tuple[Ids, Ids]]:
    """Yield, for k = 1, 2, …, the index of the context of each token in level k − 1 and of its k-gram in level k.

    The index is −1 for n-grams that were not observed. `keys` are the keys of the levels.
    """
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
    """Return the index of each query among sorted keys, or −1."""
    if not len(keys):
        return np.full(len(queries), -1)
    at = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[at] == queries, at, -1)


def _unique(keys: Ids) -> tuple[Ids, Ids, Ids]:
    """Compute np.unique with inverse and counts from one sort."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.append(np.ones(min(len(keys), 1), bool), ordered[1:] != ordered[:-1])
    inverse = np.empty(len(keys), np.int64)
    inverse[order] = np.cumsum(first) - 1
    starts = np.nonzero(first)[0]
    return ordered[starts], inverse, np.diff(np.append(starts, len(keys)))
