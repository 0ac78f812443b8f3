"""Smoothing: from n-gram counts to probabilities.

n(·) counts; c is a context, c⁻ the context without its first token; m the number of tokens that can be predicted.

laplace      P(w)     = (n(w) + ε₁/m) / (n + ε₁)
             P(w | c) = (n(c, w) + ε_k P(w | c⁻)) / (n(c) + ε_k)          the recursion of D2L, section 9.3
             (The book writes P̂(x) in the numerator of the second line; only P̂(x') makes it sum to one.)
add-k        P(w | c) = (n(c, w) + k) / (n(c) + k m)
kneser-ney   P(w | c) = (a(c, w) − D(a)) / a(c) + γ(c) P(w | c⁻)          modified, Chen and Goodman 1999
             a is n for the highest order and at the start of a sequence; below, the number of distinct contexts of
             the n-gram. D has three values per order, for a = 1, 2 and more:
             Y = t₁/(t₁ + 2 t₂),  D_j = j − (j + 1) Y t_{j+1}/t_j,  where t_j is the number of n-grams with a = j.

n(c) is the sum of n(c, w) over w, so that every context sums to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recur.baselines.ngram.counts import Counts, Sequences, check_memory
from recur.baselines.ngram.model import NGram, ProbabilityLevel
from recur.data.text.corpus import Corpus
from recur.data.text.stream import Floats, Ids
from recur.data.text.vocabulary import Vocab
from recur.errors import OptionError, unknown

SMOOTHINGS = ("kneser-ney", "laplace", "add-k")


def fit(
    corpus: Corpus | str,
    vocab: Vocab,
    order: int = 5,
    smoothing: str = "kneser-ney",
    epsilon: float | Sequence[float] = 1.0,
    k: float = 1.0,
    backward: bool = False,
) -> NGram:
    """Count a text and estimate a model.

    epsilon    one number for all orders, or ε₁, ε₂, …, for laplace
    k          for add-k
    backward   read the text from its end

    >>> from recur.baselines import ngram
    >>> text = recur.data.text.Corpus.of("book.txt")
    >>> words = recur.data.text.fit_vocab(text, "word")
    >>> model = ngram.fit(text, words, order=2, smoothing="laplace", epsilon=0.5)
    >>> model.order
    2
    """
    if not isinstance(corpus, str):
        check_memory(sum(vocab.counts), order)
    ids = vocab.encode(corpus) if isinstance(corpus, str) else vocab.encode_corpus(corpus)
    sequences = Sequences.of(ids, vocab.tokenizer.lines, backward)
    counts = Counts.of(sequences, order, len(vocab), vocab.predictable())
    return replace(estimate(counts, vocab, smoothing, epsilon, k), backward=backward)


def estimate(
    counts: Counts, vocab: Vocab, smoothing: str, epsilon: float | Sequence[float] = 1.0, k: float = 1.0
) -> NGram:
    if smoothing == "kneser-ney":
        levels, notes = _kneser_ney(counts)
        return NGram(vocab, levels, smoothing, notes)
    if smoothing == "laplace":
        return NGram(vocab, _laplace(counts, _epsilons(epsilon, counts.order)), smoothing)
    if smoothing == "add-k":
        if not (np.isfinite(k) and k >= 0):
            raise OptionError(f"add-k needs k ≥ 0, got {k}")
        return NGram(vocab, _add_k(counts, k), smoothing)
    raise OptionError(unknown("smoothing", smoothing, SMOOTHINGS))


def _epsilons(epsilon: float | Sequence[float], order: int) -> list[float]:
    values = list(epsilon) if isinstance(epsilon, Sequence) else [epsilon]
    if len(values) == 1:
        values *= order
    if len(values) != order:
        raise OptionError(f"epsilon must be one number, or {order} of them, ε₁ … ε_{order}; got {len(values)}")
    if not all(np.isfinite(e) and e >= 0 for e in values):
        raise OptionError(f"epsilon must not be negative, got {values}")
    return values


def _by_context(values: Ids | Floats, context: Ids, contexts: int) -> Floats:
    summed: Floats = np.bincount(context, weights=values, minlength=contexts).astype(np.float64)
    return summed


def _log(p: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        logp: Floats = np.log(p)
    return logp


def _ratio(a: NDArray[np.floating], b: Floats | float) -> Floats:
    """Return a / b, and 0 where nothing was observed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(b) > 0, a / b, 0.0)


def _interpolated(counts: Counts, p: list[Floats], share: list[Floats]) -> list[ProbabilityLevel]:
    """Return levels from the probability of each n-gram and the weight that its context leaves to the lower order.

    p[k] is the estimate without lower orders; share[k] the weight of the contexts of the n-grams of level k + 1.
    """
    levels = []
    interpolated = p[0]
    for k, level in enumerate(counts.levels):
        if k:
            context = level.keys // counts.K
            interpolated = p[k] + share[k - 1][context] * interpolated[level.suffix]
        backoff = share[k] if k + 1 < counts.order else np.ones(len(level))
        levels.append(ProbabilityLevel(level.keys, _log(interpolated), _log(backoff)))
    return levels


def _laplace(counts: Counts, epsilons: list[float]) -> list[ProbabilityLevel]:
    n = np.where(counts.predictable, counts.levels[0].counts, 0)
    p = [_ratio(n + np.where(counts.predictable, epsilons[0] / counts.m, 0.0), n.sum() + epsilons[0])]
    share = []
    for level, epsilon in zip(counts.levels[1:], epsilons[1:], strict=True):
        context = level.keys // counts.K
        total = _by_context(level.counts, context, len(p[-1]))
        p.append(level.counts / (total[context] + epsilon))
        share.append(np.where(total > 0, _ratio(np.full(len(total), epsilon), total + epsilon), 1.0))
    return _interpolated(counts, p, share)


def _add_k(counts: Counts, k: float) -> list[ProbabilityLevel]:
    """Interpolate directly with the uniform distribution: λ P + (1 − λ)/m with λ = n(c) / (n(c) + k m).

    Lower orders are uniform, except for contexts at the start of a sequence, which have no longer context.
    """
    m = counts.m
    uniform = np.where(counts.predictable, 1 / m, 0.0)
    levels = []
    for at, level in enumerate(counts.levels):
        highest = at + 1 == counts.order
        if at:
            context = level.keys // counts.K
            last = level.keys % counts.K
            total = _by_context(level.counts, context, len(counts.levels[at - 1]))[context]
            estimated = np.full(len(level), highest) | level.from_start
            p = np.where(estimated, _ratio(level.counts + k, total + k * m), uniform[last])
        else:
            n = np.where(counts.predictable, level.counts, 0)
            p = np.where(counts.predictable, _ratio(n + k, n.sum() + k * m), 0.0) if highest else uniform
        backoff = np.ones(len(level))
        if not highest:
            above = counts.levels[at + 1]
            total = _by_context(above.counts, above.keys // counts.K, len(level))
            full = np.full(len(level), at + 2 == counts.order) | level.from_start
            backoff = np.where(full & (total > 0), _ratio(np.full(len(level), k * m), total + k * m), 1.0)
        levels.append(ProbabilityLevel(level.keys, _log(p), _log(backoff)))
    return levels


def _kneser_ney(counts: Counts) -> tuple[list[ProbabilityLevel], tuple[str, ...]]:
    p: list[Floats] = []
    share: list[Floats] = []
    notes = []
    for at, level in enumerate(counts.levels):
        a = _adjusted(counts, at)
        discounts, fell_back = _discounts(a)
        if fell_back:
            notes.append(f"order {at + 1}: too few counts for discounts, took 0.5, 1, 1.5")
        discount = discounts[np.minimum(a, 3)]
        if at == 0:
            total = float(a.sum())
            left = float(discount.sum()) / total if total else 1.0
            p.append(np.where(counts.predictable, _ratio(a - discount, total) + left / counts.m, 0.0))
        else:
            context = level.keys // counts.K
            contexts = len(counts.levels[at - 1])
            total_of = _by_context(a, context, contexts)
            p.append((a - discount) / total_of[context])
            share.append(np.where(total_of > 0, _ratio(_by_context(discount, context, contexts), total_of), 1.0))
    return _interpolated(counts, p, share), tuple(notes)


def _adjusted(counts: Counts, at: int) -> Ids:
    """Return counts for the highest order and sequence starts; below, the number of distinct preceding tokens."""
    level = counts.levels[at]
    a = level.counts
    if at + 1 < counts.order:
        preceded = np.bincount(counts.levels[at + 1].suffix, minlength=len(level))
        # What opens a text without <bos> may have nothing before it; it was seen all the same.
        a = np.where(level.from_start, a, np.maximum(preceded, np.minimum(a, 1)))
    return np.where(counts.predictable, a, 0) if at == 0 else a


def _discounts(a: Ids) -> tuple[Floats, bool]:
    """Return D for a = 0, 1, 2, and 3 or more; and whether the usual fallback was used."""
    t = np.bincount(np.minimum(a, 5), minlength=6)[1:5].astype(float)
    if (t[:3] > 0).all():
        Y = t[0] / (t[0] + 2 * t[1])
        D = np.array([0.0] + [j - (j + 1) * Y * t[j] / t[j - 1] for j in (1, 2, 3)])
        if all(0 <= D[j] <= j for j in (1, 2, 3)):
            return D, False
    return np.array([0.0, 0.5, 1.0, 1.5]), True
