"""Memorisation: the share of generated n-grams that occur in the training text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recur.data.text import Ids
from recur.decoding import Choice, generate
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.subject import Subject
from recur.errors import OptionError
from recur.i18n import said
from recur.tasks.language.data import corpora, first_input, in_reading_order

ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
LONG = 16
"""Shorter n-grams of the training text are common in any text of the kind."""
EXCESS = 0.3
"""How much larger the share of long n-grams may be than that of held-out text."""


def ngram_hashes(ids: Ids, n: int) -> NDArray[np.uint64]:
    """One number for each n-gram; equal ones get equal numbers, and different ones practically never do."""
    if len(ids) < n:
        return np.empty(0, np.uint64)
    total = np.zeros(len(ids) - n + 1, np.uint64)
    with np.errstate(over="ignore"):
        for k in range(n):
            following = ids[k : len(ids) - n + 1 + k].astype(np.uint64) + np.uint64(1)
            total = total * np.uint64(0x9E3779B97F4A7C15) + following
            total ^= total >> np.uint64(29)
    return total


def known_shares(texts: list[Ids], training: Ids, orders: tuple[int, ...]) -> list[float]:
    """For each n, the share of the n-grams of some texts that occur in the training text."""
    found = []
    for n in orders:
        mine = np.concatenate([ngram_hashes(ids, n) for ids in texts])
        found.append(float(np.isin(mine, ngram_hashes(training, n)).mean()) if len(mine) else 0.0)
    return found


def copied(generated: list[Ids], held_out: Ids, training: Ids, orders: tuple[int, ...] = ORDERS) -> Measurement:
    """How much of what was generated is copied, beside how much of held-out text occurs in the training text anyway."""
    mine, usual = known_shares(generated, training, orders), known_shares([held_out], training, orders)
    numbers = {"orders": list(orders), "generated": mine, "held_out": usual}
    excess = [own - base for own, base in zip(mine, usual, strict=True)]
    at = max(range(len(orders)), key=lambda k: excess[k])
    detail = said(
        "{mine:.0%} of the {order}-grams that it writes occur in the training text, {usual:.0%} of those of new text",
        mine=mine[at], order=orders[at], usual=usual[at],
    )  # fmt: skip
    worst = max([excess[k] for k, n in enumerate(orders) if n >= LONG] or excess[-1:])
    if worst > EXCESS:
        verdict = said("it writes out its training text: {detail}", detail=detail)
        return Measurement(Finding("copying", Level.WARNING, worst, EXCESS, verdict), numbers)
    verdict = said("what it writes is new: {detail}", detail=detail)
    return Measurement(Finding("copying", Level.OK, max(excess[at], worst), EXCESS, verdict), numbers)


def copying(subject: Subject, *, samples: int = 8, length: int = 200) -> Measurement:
    """Generate text, and look for its n-grams in the training text."""
    language = subject.language
    if language is None:
        raise OptionError("copying needs the training text of a run; load one with recur.load")
    vocab = language.vocab
    train, valid, _ = corpora(language.options)
    columns = list(generate(language.model, [first_input(vocab)], length, Choice(), samples, subject.seed))
    generated = [in_reading_order(np.array([row[k] for row in columns]), language.options) for k in range(samples)]
    return copied(generated, vocab.encode_corpus(valid)[: samples * length], vocab.encode_corpus(train))
