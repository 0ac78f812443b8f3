"""N-gram baselines for text: Kneser–Ney of the best order, and mixtures by label.

    P(token | label) = λ P_label(token | n − 1 before) + (1 − λ) P_all(token | n − 1 before)

The order and λ are those with the best perplexity on the validation set.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from recur.baselines import ngram
from recur.baselines.ngram import NGram
from recur.data.text import Corpus, Pair, Tokenizer, Vocab, Words
from recur.data.text.stream import Floats
from recur.utils.types import JsonObject

TOO_LONG = 20_000_000
"""Texts of more tokens are counted up to order 5 only."""


def fit_best_ngram(
    vocab: Vocab, train: Corpus | str, valid: Corpus | str, backward: bool = False
) -> tuple[NGram, float]:
    """Return the n-gram of the order with the best validation perplexity, and that perplexity.

    `backward` reads from the end.
    """
    orders: tuple[int, ...] = (3, 4, 5, 6) if vocab.tokenizer.lines else (4, 6, 8, 10, 12, 14)
    if sum(vocab.counts) > TOO_LONG:
        orders = orders[:2]
    best: tuple[NGram, float] | None = None
    for order in orders:
        model = ngram.fit(train, vocab, order, backward=backward)
        found = model.evaluate(valid, unseen=False).perplexity
        if best is not None and found >= best[1]:
            break
        best = model, found
    assert best is not None
    return best


def evaluate_ngram(name: str, model: NGram, text: Corpus) -> JsonObject:
    """Evaluate an n-gram on a text; return a row for a table of models."""
    begun = time.perf_counter()
    found = model.evaluate(text, unseen=False)
    rate = found.tokens / (time.perf_counter() - begun)
    return {"model": name, **found._asdict(), "tokens_per_second": rate}


def join_tokens(tokenizer: Tokenizer, text: str) -> str:
    """Return the tokens of a text with spaces between them: one line for an n-gram."""
    return " ".join("_" if token.isspace() else token for token in tokenizer.split(text))


def joined_vocab(lines: Iterable[str]) -> Vocab:
    """Return the vocabulary of such lines, with the line end."""
    lines = list(lines)
    counts = Counter(token for line in lines for token in line.split())
    counts["<eos>"] = len(lines)
    return Vocab.from_counts(counts, Words())


SHARES = (0.3, 0.5, 0.7, 0.9)

PairPerplexity = Callable[[Sequence[Pair]], float]
"""From lines with labels to their perplexity, ends included."""


def label_ngram_baselines(
    train: Sequence[Pair], valid: Sequence[Pair], tokenizer: Tokenizer, backward: bool
) -> dict[str, PairPerplexity]:
    """Return the perplexity functions of the baselines by name."""

    def text(pairs: Sequence[Pair]) -> str:
        return "".join(f"{join_tokens(tokenizer, pair.target)}\n" for pair in pairs)

    vocab = joined_vocab(join_tokens(tokenizer, pair.target) for pair in train)
    every, _ = fit_best_ngram(vocab, text(train), text(valid), backward)
    of_label: dict[str, NGram] = {
        label: ngram.fit(text([pair for pair in train if pair.source == label]), vocab, every.order, backward=backward)
        for label in sorted({pair.source for pair in train})
    }

    def logprobs(pairs: Sequence[Pair], share: float) -> Floats:
        found = []
        for label in sorted({pair.source for pair in pairs}):
            ids = vocab.without_unseen(vocab.encode(text([pair for pair in pairs if pair.source == label])))
            both = every.logprobs(ids)
            if label in of_label:
                own = of_label[label].logprobs(ids)
                both = np.logaddexp(math.log(share) + own, math.log(1 - share) + both)
            found.append(both)
        return np.concatenate(found)

    def perplexity(pairs: Sequence[Pair], share: float) -> float:
        return float(np.exp(-logprobs(pairs, share).mean()))

    share = min(SHARES, key=lambda share: perplexity(valid, share))
    return {
        f"{every.order}-gram without labels": lambda pairs: every.evaluate(text(pairs), unseen=False).perplexity,
        f"{every.order}-grams by label": lambda pairs: perplexity(pairs, share),
    }
