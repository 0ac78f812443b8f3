"""What needs no network, to see whether one was worth its training: a copy, a look-up, and a dictionary.

copy          the source itself
look-up       what the same source had as its target in training, most often; of one never seen, the source itself
dictionary    symbol by symbol, or word by word, what each is most likely to become, in the order of the source:
              t(e | f) of IBM's model 1 (Brown et al. 1993)

    t(e | f) ∝ Σ over pairs, and places of e in the target, of t(e | f) / Σ_f' t(e | f')          some rounds of EM

f' are the symbols of the source and one more, which stands for nothing and takes what none of them explains.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from recur.data.text import Pair, Tokenizer, Words

SENTENCES = ("word", "subword")
"""Kinds of tokens of sentences, which are translated word by word."""

ROUNDS = 5
"""Of EM: by then a word's first choice hardly changes."""

LINKS = 2_000_000
"""Links between symbols that are counted, about, at most; of more pairs than have so many, evenly spread ones are
taken."""

Translator = Callable[[str], str]
"""A target's text from a source's."""


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
