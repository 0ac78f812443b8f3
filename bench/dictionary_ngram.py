"""Interpolated modified Kneser–Ney as one would first write it: Python dictionaries of tuples, one word at a time.

The peer that recur's counting is timed against, and an independent oracle for its tests.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

Gram = tuple[str, ...]


class DictionaryKneserNey:
    def __init__(self, sentences: Iterable[list[str]], order: int, vocabulary: set[str]) -> None:
        """`vocabulary` is all that can be predicted, </s> and <unk> included."""
        self.order, self.vocabulary = order, vocabulary
        counts = self._count(sentences)
        self.adjusted: list[dict[Gram, int]] = [{}]
        for n in range(1, order):
            self.adjusted.append(self._adjusted(counts[n], counts[n + 1]))
        self.adjusted.append(dict(counts[order]))
        self.discounts = [self._discounts(n) for n in range(order + 1)]
        self.total: list[dict[Gram, int]] = [defaultdict(int) for _ in range(order + 1)]
        self.left: list[dict[Gram, float]] = [defaultdict(float) for _ in range(order + 1)]
        for n in range(1, order + 1):
            for gram, a in self.adjusted[n].items():
                self.total[n][gram[:-1]] += a
                self.left[n][gram[:-1]] += self.discounts[n][min(a, 3)]

    def _count(self, sentences: Iterable[list[str]]) -> list[Counter[Gram]]:
        counts: list[Counter[Gram]] = [Counter() for _ in range(self.order + 1)]
        for sentence in sentences:
            words = ["<s>", *sentence, "</s>"]
            for end in range(1, len(words)):
                for n in range(1, min(self.order, end + 1) + 1):
                    counts[n][tuple(words[end - n + 1 : end + 1])] += 1
        return counts

    def _adjusted(self, counts: Counter[Gram], longer: Counter[Gram]) -> dict[Gram, int]:
        """In how many different contexts an n-gram was seen; what begins a sentence has one only, and is counted."""
        before: dict[Gram, set[str]] = defaultdict(set)
        for gram in longer:
            before[gram[1:]].add(gram[0])
        return {gram: c if gram[0] == "<s>" else len(before[gram]) for gram, c in counts.items()}

    def _discounts(self, n: int) -> list[float]:
        t = [0.0] * 5
        for a in self.adjusted[n].values():
            if 1 <= a <= 4:
                t[a] += 1
        if min(t[1:4]) > 0:
            Y = t[1] / (t[1] + 2 * t[2])
            D = [0.0] + [j - (j + 1) * Y * t[j + 1] / t[j] for j in (1, 2, 3)]
            if all(0 <= D[j] <= j for j in (1, 2, 3)):
                return D
        return [0.0, 0.5, 1.0, 1.5]

    def probability(self, word: str, context: Gram) -> float:
        n = len(context) + 1
        lower = 1 / len(self.vocabulary) if n == 1 else self.probability(word, context[1:])
        total = self.total[n].get(context, 0)
        if not total:
            return lower
        a = self.adjusted[n].get((*context, word), 0)
        return (a - self.discounts[n][min(a, 3)] + self.left[n][context] * lower) / total

    def perplexity(self, sentences: Iterable[list[str]]) -> float:
        logp, predicted = 0.0, 0
        for sentence in sentences:
            words = ["<s>", *(w if w in self.vocabulary else "<unk>" for w in sentence), "</s>"]
            for end in range(1, len(words)):
                logp += math.log(self.probability(words[end], tuple(words[max(0, end - self.order + 1) : end])))
                predicted += 1
        return math.exp(-logp / predicted)
