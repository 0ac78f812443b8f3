"""Classes without a network: the most frequent one, and an n-gram model for each class with the prior of the classes.

    class = argmax_k log P(k) + log P(text | k)

The order is the one that tells the validation texts best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from recur.baselines import ngram
from recur.baselines.ngram import NGram
from recur.data.text import EOS, Tokenizer
from recur.tasks.language.baseline import spaced, spaced_vocab

ORDERS = (1, 2, 3, 4, 5, 6)

Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]

Labelled = Sequence[tuple[str, int]]
"""Texts, each with its class."""


class ClassNGrams:
    def __init__(self, train: Labelled, tokenizer: Tokenizer, order: int) -> None:
        self.order, self.tokenizer = order, tokenizer
        lines = [(spaced(tokenizer, text), k) for text, k in train]
        vocab = spaced_vocab(line for line, _ in lines)
        self.models: dict[int, NGram] = {}
        self.prior: dict[int, float] = {}
        for k in sorted({k for _, k in lines}):
            own = [line for line, of in lines if of == k]
            self.models[k] = ngram.fit("\n".join(own) + "\n", vocab, order)
            self.prior[k] = math.log(len(own) / len(lines))

    def log_probabilities(
        self, texts: Sequence[str], classes: int
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """log P(k | text), (texts, classes): what the joint probabilities are when they sum to one."""
        vocab = next(iter(self.models.values())).vocab
        ids = vocab.encode("".join(f"{spaced(self.tokenizer, text)}\n" for text in texts))
        starts = np.concatenate([[0], np.flatnonzero(ids == EOS)[:-1] + 1])
        scores = np.full((len(texts), classes), -np.inf)
        for k, model in self.models.items():
            scores[:, k] = self.prior[k] + np.add.reduceat(model.logprobs(ids), starts)
        most = scores.max(1, keepdims=True)
        return np.asarray(scores - most - np.log(np.exp(scores - most).sum(1, keepdims=True)))

    def classify(self, texts: Sequence[str]) -> list[int]:
        return [int(k) for k in self.log_probabilities(texts, max(self.models) + 1).argmax(1)]


def best_ngrams(train: Labelled, valid: Labelled, tokenizer: Tokenizer) -> ClassNGrams:
    """The order rises until that tells no more validation texts."""
    best: tuple[int, ClassNGrams] | None = None
    for order in ORDERS:
        model = ClassNGrams(train, tokenizer, order)
        predictions = model.classify([text for text, _ in valid])
        right = sum(k == target for k, (_, target) in zip(predictions, valid, strict=True))
        if best is not None and right <= best[0]:
            break
        best = right, model
    assert best is not None
    return best[1]
