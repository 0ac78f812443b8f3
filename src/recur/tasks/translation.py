"""BLEU and chrF of translations as sacrebleu has them: of whole texts, one reference each, 0 … 100.

    BLEU   exp(mean of log p_n, n = 1 … 4) · min(1, exp(1 − r / c))     Papineni et al. 2002; Post 2018
    chrF   (1 + β²) P R / (β² P + R), β = 2                              Popović 2015

p_n is the share of the translations' n-grams of words that their references have, each counted at most as often as it
stands there; r and c are the words of references and translations, cut as mteval-v13a cuts them. An order without a
match counts as 1/2, 1/4, … of one (sacrebleu's `exp`). P and R are precision and recall of n-grams of characters,
spaces left out, means over the orders 1 … 6 that both sides have.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

WORDS, CHARACTERS = 4, 6
"""The longest n-grams counted."""

BETA = 2
"""Recall weighs so much more than precision."""

ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))

CUTS = (
    (re.compile(r"([!-&(-+/:-@\[-`{-~ ])"), r" \1 "),  # signs, but for ' , - and .
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),  # . and , unless digits stand on both sides
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


def mteval_words(line: str) -> list[str]:
    """The words of a line as mteval-v13a.pl, the script of the evaluations of WMT, cuts them."""
    line = line.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, sign in ENTITIES:
        line = line.replace(entity, sign)
    line = f" {line} "
    for pattern, apart in CUTS:
        line = pattern.sub(apart, line)
    return line.split()


def bleu(references: Sequence[str], translations: Sequence[str]) -> float:
    matched, made = [0] * WORDS, [0] * WORDS
    r = c = 0
    for reference, translation in zip(references, translations, strict=True):
        wanted, found = mteval_words(reference), mteval_words(translation)
        r, c = r + len(wanted), c + len(found)
        for n in range(WORDS):
            there = Counter(zip(*(found[k:] for k in range(n + 1)), strict=False))
            matched[n] += (there & Counter(zip(*(wanted[k:] for k in range(n + 1)), strict=False))).total()
            made[n] += there.total()
    if not matched[0] or not made[-1]:
        return 0.0
    missed, logs = 1.0, 0.0
    for m, n in zip(matched, made, strict=True):
        missed = missed if m else 2 * missed
        logs += math.log((m or 1 / missed) / n)
    return 100 * math.exp(logs / WORDS + min(0.0, 1 - r / c))


def chrf(references: Sequence[str], translations: Sequence[str]) -> float:
    matched, made, there = ([0] * CHARACTERS for _ in range(3))
    for reference, translation in zip(references, translations, strict=True):
        a, b = "".join(reference.split()), "".join(translation.split())
        for n in range(1, CHARACTERS + 1):
            in_a, in_b = (Counter(text[k : k + n] for k in range(len(text) - n + 1)) for text in (a, b))
            matched[n - 1] += (in_a & in_b).total()
            made[n - 1] += in_b.total() if in_a else 0  # of a reference that has none, as sacrebleu counts
            there[n - 1] += in_a.total()
    orders = [n for n in range(CHARACTERS) if made[n] and there[n]]
    if not any(matched[n] for n in orders):
        return 0.0
    precision = sum(matched[n] / made[n] for n in orders) / len(orders)
    recall = sum(matched[n] / there[n] for n in orders) / len(orders)
    return 100 * (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)
