"""Baselines for tagging and for translation.

Tagging: each word's most frequent tag, and a linear-chain CRF on words (Lafferty, McCallum and Pereira 2001), fitted by
a few passes of AdaGrad (Duchi, Hazan and Singer 2011):

    x_t[k] = Σ of the weights of tag k over the features of word t: the word and its neighbours, pairs of them, its
             prefix, suffixes and casing

Translation:

copy          the source itself
look-up       the most frequent target of the same source in the training set; an unknown source is copied
dictionary    the likeliest target of each symbol, or of each word, in the order of the source: t(e | f) of IBM model 1
              (Brown et al. 1993)

    t(e | f) ∝ Σ over pairs, and positions of e in the target, of t(e | f) / Σ_f' t(e | f')          some rounds of EM

f' are the symbols of the source and the empty symbol, which takes what none of them explains.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from recur.data.batching import Shuffled, in_order, padded
from recur.data.text import UNK, Lines, Pair, Sentence, Tokenizer, Vocab, Words
from recur.data.text.tokenizers import CASINGS, casing_of
from recur.nn.crf import Transitions, log_partition, path_score, viterbi

FEATURES = 14
"""Number of features of a word."""
SEEN = 2
"""Least number of occurrences of a feature that has weights."""
PASSES, BATCH, RATE = 4, 16, 0.1
ROWS = 128

EncodedFeatures = tuple[np.ndarray, list[int]]
"""Indices of the features (words, FEATURES) and of the tags of a sentence."""


def tagging_baselines(
    train: Sequence[Sentence], sentences: Sequence[Sentence], fitted: FeatureCRF | None = None
) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the name and the predicted tags of each baseline, fitted to `train`; `fitted` is the CRF if it exists."""
    yield "each word's most frequent tag", most_frequent_tags(train, sentences)
    yield "CRF on words", (fitted or FeatureCRF.fit(train)).tag(sentences)


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


class FeatureCRF(nn.Module):
    """Linear-chain CRF on features of words."""

    weights: Tensor
    start: Tensor
    transitions: Tensor
    end: Tensor

    def __init__(self, features: Vocab, tags: Sequence[str]) -> None:
        """Create a CRF without knowledge: all weights are 0."""
        super().__init__()
        self.features, self.tags, K = features, tuple(tags), len(tags)
        self.register_buffer("weights", torch.zeros(len(features), K))
        for name, shape in (("start", (K,)), ("transitions", (K, K)), ("end", (K,))):
            self.register_buffer(name, torch.zeros(shape))

    @classmethod
    def fit(
        cls,
        sentences: Sequence[Sentence],
        features: Vocab | None = None,
        tags: Sequence[str] | None = None,
        passes: int = PASSES,
    ) -> FeatureCRF:
        """Fit a CRF; equal sentences give equal weights."""
        tags = sorted({tag for s in sentences for tag in s.tags}) if tags is None else tags
        made = cls(feature_vocab(sentences) if features is None else features, tags)
        made._fit([(made.encode(s.words), made._numbers(s)) for s in sentences], passes)
        return made

    @property
    def moves(self) -> Transitions:
        return Transitions(self.start, self.transitions, self.end)

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Return the numbers of the features of words, (words, FEATURES); 0 for a feature without weights."""
        get = self.features.ids.get
        return np.array([[get(name, UNK) for name in row] for row in word_features(words)], np.int64)

    def _numbers(self, sentence: Sentence) -> list[int]:
        numbers = {tag: k for k, tag in enumerate(self.tags)}
        return [numbers[tag] for tag in sentence.tags]

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores of the tags (B, T, K) for numbers of features (B, T, FEATURES)."""
        return _scores(features, self.weights)

    @torch.enable_grad()
    def _fit(self, sentences: list[EncodedFeatures], passes: int) -> None:
        drawn = Shuffled(sentences, BATCH, 0, list, lambda sentence: len(sentence[1]))
        squares = torch.zeros_like(self.weights)
        totals = [torch.zeros_like(weight) for weight in self.moves]
        for epoch in range(passes):
            for batch in drawn.batches(epoch):
                given, lengths = _rows(batch)
                rows, places = given.unique(return_inverse=True)  # of all features a batch has a few
                weights = self.weights[rows].requires_grad_()
                moves = Transitions(*(weight.clone().requires_grad_() for weight in self.moves))
                tags, _ = padded([np.array(tags) for _, tags in batch], fill=0)
                x = _scores(places, weights)
                likelihood = path_score(x, lengths, moves, tags) - log_partition(x, lengths, moves)
                found = torch.autograd.grad(-likelihood.sum() / len(batch), [weights, *moves])
                with torch.no_grad():
                    own = squares[rows] + found[0] ** 2
                    self.weights[rows] -= RATE * found[0] / (own.sqrt() + 1e-10)
                    self.weights[UNK] = 0  # a feature without weights
                    squares[rows] = own
                    for weight, total, slope in zip(self.moves, totals, found[1:], strict=True):
                        total += slope**2
                        weight.sub_(RATE * slope / (total.sqrt() + 1e-10))

    @torch.no_grad()
    def tag(self, sentences: Sequence[Sentence]) -> list[list[str]]:
        """Return the best tags of sentences."""
        found = []
        encoded = [(self.encode(s.words), [0] * len(s.words)) for s in sentences]
        for batch in in_order(encoded, ROWS, list):
            given, lengths = _rows(batch)
            best = viterbi(self(given), lengths, self.moves).tags[:, 0].tolist()
            found += [[self.tags[k] for k in row[:count]] for row, count in zip(best, lengths.tolist(), strict=True)]
        return found


def feature_vocab(sentences: Iterable[Sentence]) -> Vocab:
    """Return the features that occur at least SEEN times."""
    counts = Counter(name for s in sentences for row in word_features(s.words) for name in row)
    return Vocab.from_counts(counts, Lines(), SEEN)


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


SENTENCES = ("word", "subword")
"""Kinds of tokens of sentences, which are translated word by word."""

ROUNDS = 5
"""Rounds of EM: after these, the likeliest target of a word hardly changes."""

LINKS = 2_000_000
"""Approximate largest number of links between symbols; with more, evenly spaced pairs are used."""

Translator = Callable[[str], str]
"""Function from a source text to a target text."""


def translation_baselines(train: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> dict[str, Translator]:
    """Return the baselines by name, fitted to training pairs."""
    return {
        "copy": lambda text: text,
        "look-up": lookup_translator(train),
        "dictionary": dictionary_translator(train, source, target),
    }


def lookup_translator(train: Sequence[Pair]) -> Translator:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pair in train:
        counts[pair.source][pair.target] += 1
    known = {text: targets.most_common(1)[0][0] for text, targets in counts.items()}
    return lambda text: known.get(text, text)


def dictionary_translator(train: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> Translator:
    """Return a translator by symbol, or by word for sentences; unknown symbols are copied."""
    cut, joined = (Words(punctuation=True) if side.kind in SENTENCES else side for side in (source, target))

    def sides(pairs: Sequence[Pair]) -> list[tuple[list[str], list[str]]]:
        return [(cut.split(pair.source), joined.split(pair.target)) for pair in pairs]

    some = sides(train[:: max(1, len(train) // 200)])
    links = sum((len(a) + 1) * len(b) for a, b in some) / len(some) * len(train)
    best = fit_ibm_model1(sides(train[:: max(1, math.ceil(links / LINKS))]))
    return lambda text: joined.join(best.get(token, token) for token in cut.split(text))


def fit_ibm_model1(pairs: Sequence[tuple[list[str], list[str]]]) -> dict[str, str]:
    """Return the likeliest target symbol of each source symbol by IBM model 1; ties take the first seen."""
    left: dict[str, int] = {"": 0}  # the symbol that stands for nothing
    right: dict[str, int] = {}
    f, e, place = [], [], []
    places = 0
    for a, b in pairs:
        sources = np.array([0, *(left.setdefault(token, len(left)) for token in a)])
        targets = np.array([right.setdefault(token, len(right)) for token in b])
        f.append(np.tile(sources, len(b)))
        e.append(np.repeat(targets, len(sources)))
        place.append(np.repeat(np.arange(places, places + len(b)), len(sources)))
        places += len(b)
    if not places:
        return {}
    rows, columns, where = map(np.concatenate, (f, e, place))
    kinds, link = np.unique(rows * len(right) + columns, return_inverse=True)
    row = kinds // len(right)
    t = np.ones(len(kinds))
    for _ in range(ROUNDS):
        share = t[link]
        share /= np.bincount(where, share)[where]
        counted = np.bincount(link, share)
        t = counted / np.bincount(row, counted)[row]
    order = np.lexsort((kinds, -t, row))  # by source, the likeliest first
    first = order[np.unique(row[order], return_index=True)[1]]
    names, written = list(left), list(right)
    return {names[row[k]]: written[kinds[k] % len(right)] for k in first if row[k]}
