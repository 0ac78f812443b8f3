"""Tokens of a corpus counted: of a large one shard by shard, on several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from recur.data.text.corpus import Corpus
from recur.data.text.cutting import whole_words
from recur.data.text.shards import merged
from recur.data.text.tokens import Tokenizer
from recur.data.text.workers import each

SAMPLE = 1 << 25
"""Characters from which subwords of a large text are learned: as much of each of its shards."""


def some_of(corpus: Corpus) -> Iterator[str]:
    parts = corpus.shards()
    if corpus.characters <= SAMPLE:
        yield from corpus.pieces()
        return
    for part in parts:
        left = SAMPLE // len(parts)
        for piece in whole_words(part.pieces()):
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                break


def count_corpus(corpus: Corpus, tokenizer: Tokenizer) -> Counter[str]:
    """How often each token is there; of a large text, by several processes."""
    if len(corpus.known) < 2:
        return tokenizer.count(corpus.pieces())
    return merged(each(_count_shard, [(part, tokenizer) for part in corpus.shards()]))


def _count_shard(job: tuple[Corpus, Tokenizer]) -> Counter[str]:
    part, tokenizer = job
    return tokenizer.count(part.pieces())
