"""Without a network, what a tagger has to beat: each word's most frequent tag, and a linear-chain CRF on words.

    x_t[k] = Σ of the weights of tag k over the features of word t: the word and its neighbours, pairs of them, how it
             begins, ends and is written

Lafferty, McCallum and Pereira 2001, with features as usual since; fitted by AdaGrad (Duchi, Hazan and Singer 2011), a
few passes, in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from recur.data.batching import Shuffled, in_order, padded
from recur.data.text import Sentence
from recur.data.text.tokenizers import CASINGS, casing_of
from recur.nn.crf import CRF

FEATURES = 14
"""Of a word."""
SEEN = 2
"""How often a feature must have been seen to have weights."""
PASSES, BATCH, RATE = 4, 16, 0.1
ROWS = 128

EncodedFeatures = tuple[np.ndarray, list[int]]
"""Of a sentence: the numbers of features (words, FEATURES), and of tags."""


def tagging_baselines(
    train: Sequence[Sentence], sentences: Sequence[Sentence]
) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the name and the predicted tags of each baseline, fitted to `train`."""
    yield "each word's most frequent tag", most_frequent_tags(train, sentences)
    yield "CRF on words", FeatureCRF(train).tag(sentences)


def most_frequent_tags(train: Iterable[Sentence], sentences: Iterable[Sentence]) -> list[list[str]]:
    """Return each word's most frequent tag; for an unknown word, the most frequent tag of all."""
    seen: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for sentence in train:
        total.update(sentence.tags)
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            seen.setdefault(word, Counter())[tag] += 1
    usual = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    commonest = total.most_common(1)[0][0]
    return [[usual.get(word, commonest) for word in sentence.words] for sentence in sentences]


def word_features(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the FEATURES features of each word."""
    lower = ["", "", *map(str.lower, words), "", ""]
    looks = ["", *(CASINGS[casing_of(word)] for word in words), ""]
    for t, word in enumerate(words, start=2):
        a, b, c, d, e = lower[t - 2 : t + 3]
        yield (
            *(f"-2 {a}", f"-1 {b}", f"0 {c}", f"1 {d}", f"2 {e}", f"-1 0 {b} {c}", f"0 1 {c} {d}", f"-1 1 {b} {d}"),
            *(f"as {word}", f"begins {c[:3]}", f"ends {c[-2:]}", f"ends {c[-3:]}"),
            *(f"looks {looks[t - 1]}", f"looks {looks[t - 2]} {looks[t - 1]} {looks[t]}"),
        )


class FeatureCRF:
    """Linear-chain CRF on features of words."""

    def __init__(self, sentences: Sequence[Sentence], passes: int = PASSES) -> None:
        """Fit the CRF; equal sentences give equal weights."""
        counts = Counter(name for s in sentences for row in word_features(s.words) for name in row)
        self.numbers = {name: k for k, name in enumerate((n for n, c in counts.items() if c >= SEEN), start=1)}
        self.tags = sorted({tag for s in sentences for tag in s.tags})
        with torch.random.fork_rng(devices=[]):  # its own weights are drawn, and then none of them are kept
            self.crf = CRF(len(self.tags))
        for weight in self.crf.parameters():
            torch.nn.init.zeros_(weight)
        self.weights = torch.zeros(len(self.numbers) + 1, len(self.tags))
        self._fit(self._encode(sentences), passes)

    def _encode(self, sentences: Iterable[Sentence]) -> list[EncodedFeatures]:
        get, tags = self.numbers.get, {tag: k for k, tag in enumerate(self.tags)}
        found = []
        for s in sentences:
            rows = np.array([[get(name, 0) for name in row] for row in word_features(s.words)], np.int64)
            found.append((rows, [tags.get(tag, 0) for tag in s.tags] or [0] * len(s.words)))
        return found

    def _fit(self, sentences: list[EncodedFeatures], passes: int) -> None:
        drawn = Shuffled(sentences, BATCH, 0, list, lambda sentence: len(sentence[1]))
        squares = torch.zeros_like(self.weights)
        moves = [(weight, torch.zeros_like(weight)) for weight in self.crf.parameters()]
        for epoch in range(passes):
            for batch in drawn.batches(epoch):
                given, lengths = _rows(batch)
                rows, places = given.unique(return_inverse=True)  # of all features a batch has a few
                weights = self.weights[rows].requires_grad_()
                tags, _ = padded([np.array(tags) for _, tags in batch], fill=0)
                x = _scores(places, weights)
                loss = -self.crf.log_likelihood(x, lengths, tags).sum() / len(batch)
                found = torch.autograd.grad(loss, [weights, *(weight for weight, _ in moves)])
                with torch.no_grad():
                    own = squares[rows] + found[0] ** 2
                    self.weights[rows] -= RATE * found[0] / (own.sqrt() + 1e-10)
                    self.weights[0] = 0  # a feature without weights
                    squares[rows] = own
                    for (weight, total), slope in zip(moves, found[1:], strict=True):
                        total += slope**2
                        weight.sub_(RATE * slope / (total.sqrt() + 1e-10))

    @torch.no_grad()
    def tag(self, sentences: Sequence[Sentence]) -> list[list[str]]:
        """Return the best tags of sentences."""
        found = []
        for batch in in_order(self._encode(sentences), ROWS, list):
            given, lengths = _rows(batch)
            x = _scores(given, self.weights)
            best = self.crf.nbest(x, lengths).tags[:, 0].tolist()
            found += [[self.tags[k] for k in row[:count]] for row, count in zip(best, lengths.tolist(), strict=True)]
        return found


def _rows(batch: Sequence[EncodedFeatures]) -> tuple[Tensor, Tensor]:
    """Return the feature numbers (B, T, FEATURES) and the lengths (B,)."""
    lengths = torch.tensor([len(tags) for _, tags in batch])
    rows = np.zeros((len(batch), int(lengths.max()), FEATURES), np.int64)
    for b, (numbers, tags) in enumerate(batch):
        rows[b, : len(tags)] = numbers
    return torch.from_numpy(rows), lengths


def _scores(given: Tensor, weights: Tensor) -> Tensor:
    """Return the scores of the tags, (B, T, K)."""
    return embedding_bag(given.flatten(0, 1), weights, mode="sum").view(*given.shape[:2], -1)
