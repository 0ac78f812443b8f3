"""Text statistics: frequencies, stop words, Zipf fits, vocabulary coverage and n-gram novelty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recur.baselines.ngram.model import Counts, Sequences, ngram_indices
from recur.data.text.corpus import Corpus
from recur.data.text.stream import Ids, Mask
from recur.data.text.tokenizers import SPECIALS, UNK
from recur.data.text.vocabulary import Vocab
from recur.errors import TextError
from recur.utils.files import new_figure, save_figure

ENGLISH = """
a about above after again against all also am an and any are as at be because been before being below between both but
by can could did do does doing down during each few for from further had has have having he her here hers herself him
himself his how i if in into is it its itself just may me might more most must my myself no nor not now of off on once
only or other our ours ourselves out over own same shall she should so some such than that the their theirs them
themselves then there these they this those through to too under until up upon us very was we were what when where which
while who whom why will with would you your yours yourself yourselves
"""

CHINESE = """
的 了 和 是 在 有 我 他 她 它 你 们 我们 你们 他们 这 那 这个 那个 不 也 都 就 与 及 或 而 但 但是 因为 所以 如果 一
一个 之 其 于 以 为 被 把 对 从 到 由 向 并 很 更 最 又 再 还 着 过 吗 呢 吧 啊 上 下 中 里 个 地 得
"""

STOP_WORDS = frozenset((ENGLISH + CHINESE).split())


COVERAGE = (0.5, 0.8, 0.9, 0.95, 0.99)


class Zipf(NamedTuple):
    """Fit log n_i = c − α log i by least squares at ranks spaced evenly in their logarithm.

    The first ranks and the types seen once are left out, because the law does not hold there.
    """

    order: int
    alpha: float
    c: float
    r_squared: float
    types: int
    tokens: int
    once: int
    """Number of types seen once."""
    counts: Ids
    """All counts, highest first."""


@dataclass(frozen=True)
class Statistics:
    characters: int
    tokens: int
    types: int
    top: list[tuple[str, int]]
    stop_share: float
    zipf: list[Zipf]
    coverage: dict[float, int]
    """Number of the most frequent types that cover a fraction of all tokens."""
    novel: dict[int, float]
    """For each n, the fraction of n-grams of the held-out set that are not in the training set."""


def describe(
    train: Corpus,
    held: Corpus | None,
    vocab: Vocab,
    top: int = 20,
    stop_words: bool = True,
    across_lines: bool = False,
) -> Statistics:
    """Return statistics of a text, compared with a held-out set.

    stop_words     False leaves stop words out of the top list
    across_lines   count n-grams of words across line ends
    """
    words = _words(vocab)
    by_line = vocab.tokenizer.lines and not across_lines
    sequences = _only(Sequences.of(vocab.encode_corpus(train), by_line), words)
    K = len(vocab)
    if not sequences.inside(1).any():
        raise TextError(f"{train.name} holds no word to count")
    counts = Counts.of(sequences, 5, K, np.ones(K, bool))
    singles = np.where(words, counts.levels[0].counts, 0)
    order = np.argsort(-singles, kind="stable")
    words_known = vocab.tokenizer.kind == "word"  # of characters none is a word
    is_stop = np.array([words_known and token.lower() in STOP_WORDS for token in vocab.tokens])
    listed = [k for k in order if singles[k] and (stop_words or not is_stop[k])][:top]
    running = np.cumsum(singles[order])
    return Statistics(
        characters=train.characters,
        tokens=int(singles.sum()),
        types=int((singles > 0).sum()),
        top=[(vocab.tokens[k], int(singles[k])) for k in listed],
        stop_share=float(singles[is_stop].sum() / singles.sum()),
        zipf=[fit_zipf(_inside(counts, k, singles), k) for k in (1, 2, 3)],
        coverage={share: int(np.searchsorted(running, share * running[-1])) + 1 for share in COVERAGE},
        novel={} if held is None else _novel(counts, _only(Sequences.of(vocab.encode_corpus(held), by_line), words), K),
    )


def _words(vocab: Vocab) -> Mask:
    """Return a mask (K,) of words: tokens with a letter or a digit; all tokens, if they are characters."""
    if vocab.tokenizer.kind == "char":
        return np.ones(len(vocab), bool)
    return np.array([t not in SPECIALS[1:] and any(c.isalnum() for c in t) for t in vocab.tokens])


def _only(sequences: Sequences, words: Mask) -> Sequences:
    """Return the sequences without punctuation and line ends; <bos> keeps them apart."""
    if words.all():
        return sequences
    if not sequences.has_bos:  # one sequence
        ids = sequences.ids[words[sequences.ids]]
        return Sequences(ids, np.arange(len(ids)), has_bos=False)
    keep = words[sequences.ids] | (sequences.depth == 0)
    starts = np.nonzero(sequences.depth[keep] == 0)[0]
    depth = np.arange(keep.sum()) - np.repeat(starts, np.diff(np.append(starts, keep.sum())))
    return Sequences(sequences.ids[keep], depth, sequences.has_bos)


def _inside(counts: Counts, k: int, singles: Ids) -> Ids:
    """Return the counts of k-grams inside a sequence, highest first."""
    level = counts.levels[k - 1]
    found = singles if k == 1 else level.counts[~level.from_start]
    return np.sort(found[found > 0])[::-1]


def fit_zipf(counts: Ids, order: int = 1) -> Zipf:
    types, tokens, once = len(counts), int(counts.sum()), int((counts == 1).sum())
    first = 10 if types >= 100 else 1
    last = max(types - once, first + 1)
    ranks = np.unique(np.geomspace(first, last, 60).round().astype(int))
    ranks = ranks[ranks <= types]
    if len(ranks) < 3:
        return Zipf(order, float("nan"), float("nan"), float("nan"), types, tokens, once, counts)
    x, y = np.log(ranks), np.log(counts[ranks - 1])
    slope, c = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    rest = float(((y - c - slope * x) ** 2).sum())
    r_squared = 1 - rest / spread if spread else float("nan")
    return Zipf(order, -float(slope), float(c), r_squared, types, tokens, once, counts)


def _novel(counts: Counts, sequences: Sequences, K: int) -> dict[int, float]:
    novel = {}
    walk = ngram_indices([level.keys for level in counts.levels], K, sequences)
    for k, (_, place) in enumerate(walk, start=1):
        found = place[sequences.inside(k)]
        seen = (counts.levels[0].counts[found] > 0) & (found != UNK) if k == 1 else found >= 0
        if len(found):
            novel[k] = float(1 - seen.mean())
    return novel


def figure(statistics: Statistics, path: str, title: str) -> None:
    """Draw counts against ranks of unigrams, bigrams and trigrams on logarithmic axes, with fitted lines."""
    drawing, (axes,) = new_figure(height=4.4)
    for zipf, name in zip(statistics.zipf, ("single", "pairs", "triples"), strict=True):
        if not zipf.types:  # no line is as long
            continue
        ranks = np.arange(1, zipf.types + 1)
        shown = np.unique(np.geomspace(1, zipf.types, 400).round().astype(int)) - 1
        (line,) = axes.loglog(ranks[shown], zipf.counts[shown], ".", ms=3, label=f"{name}, α = {zipf.alpha:.2f}")
        if np.isfinite(zipf.alpha):
            ends = np.array([1, zipf.types])
            axes.loglog(ends, np.exp(zipf.c) * ends**-zipf.alpha, "-", lw=0.8, color=line.get_color())
    axes.set(xlabel="rank", ylabel="count", ylim=(0.7, None))
    axes.set_title(title if title.isascii() else "", parse_math=False)
    axes.legend()
    save_figure(drawing, path)
